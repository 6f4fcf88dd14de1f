"""The live page: draw a digit or drop an image, and see what trained networks say of it, and how certain they are.

A request goes through :mod:`~contextual_dropout.serve.guard` to :mod:`~contextual_dropout.serve.application`; what was
sent becomes pixels in :mod:`~contextual_dropout.serve.drawings` or :mod:`~contextual_dropout.serve.images`, and
:mod:`~contextual_dropout.serve.live` answers. The page itself is three files without dependencies in ``static``.
"""

from contextual_dropout.serve.application import create_app
from contextual_dropout.serve.live import LiveNetworks, load_live

__all__ = ["LiveNetworks", "create_app", "load_live"]
