"""The live page: draw a digit or drop an image, and see the answers of trained networks, and how certain they are.

A request goes through :mod:`~contextual_dropout_lab.serve.guard` to :mod:`~contextual_dropout_lab.serve.application`;
what was sent becomes pixels in :mod:`~contextual_dropout_lab.serve.drawings` or
:mod:`~contextual_dropout_lab.serve.uploads`, and :mod:`~contextual_dropout_lab.serve.live_networks` answers. The page
itself is three files without dependencies in ``static``.
"""

from contextual_dropout_lab.serve.application import create_app
from contextual_dropout_lab.serve.live_networks import LiveNetworks, load_live

__all__ = ["LiveNetworks", "create_app", "load_live"]
