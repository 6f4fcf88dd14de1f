"""``python -m contextual_dropout``, and ``torchrun … -m contextual_dropout``: the command ``contextual-dropout``."""

from contextual_dropout.cli import main

if __name__ == "__main__":
    main()
