"""The command ``contextual-dropout`` as ``python -m contextual_dropout_lab``, and so for ``torchrun … -m``."""

from contextual_dropout_lab.cli import main

if __name__ == "__main__":
    main()
