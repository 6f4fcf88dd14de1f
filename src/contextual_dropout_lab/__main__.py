"""``python -m contextual_dropout_lab``, and ``torchrun … -m contextual_dropout_lab``: the command ``contextual-dropout``."""

from contextual_dropout_lab.cli import main

if __name__ == "__main__":
    main()
