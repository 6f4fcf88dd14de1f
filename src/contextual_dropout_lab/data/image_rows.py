"""The images of a folder as rows of a table that does not fit into memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from contextual_dropout_lab.data.augment import center_crop
from contextual_dropout_lab.data.image_folder import ImageFolder
from contextual_dropout_lab.data.lookup import Rows

__all__ = ["ImageRows"]


class ImageRows(Rows):
    """Images that are read and decoded when their rows are asked for: the table of a ``Lookup``.

    Args:
        folder: where they are.
        crop: only the middle of them, of this side.
        prepare: what is done to a batch (B, 3, H, W) of pixels from 0 to 1 before it is given out.
        workers: threads that decode; as many as there are cores by default. The result is the same.

    Example:
        >>> import pathlib, tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     (path := pathlib.Path(root, "train", "cat")).mkdir(parents=True)
        ...     Image.new("RGB", (20, 30), (255, 0, 51)).save(path / "1.png")
        ...     rows = ImageRows(ImageFolder(root, "train", size=8), crop=4)
        ...     rows.shape, rows.index_select(0, torch.tensor([0, 0]))[1, :, 0, 0]
        (torch.Size([1, 3, 4, 4]), tensor([1.0000, 0.0000, 0.2000]))
    """

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(
        self,
        folder: ImageFolder,
        crop: int | None = None,
        prepare: Callable[[Tensor], Tensor] | None = None,
        workers: int | None = None,
    ) -> None:
        self.folder, self.side, self.prepare = folder, folder.size if crop is None else crop, prepare
        self.workers = workers or os.cpu_count() or 1

    @property
    def shape(self) -> torch.Size:
        """(N, 3, H, W)."""
        return torch.Size([len(self.folder), 3, self.side, self.side])

    def is_floating_point(self) -> bool:
        """Whether pixels are floating-point numbers: they are, from 0 to 1 unless ``prepare`` changes that."""
        return True

    def index_select(self, dim: int, index: Tensor, /) -> Tensor:
        """The images of these rows, (B, 3, H, W).

        Raises:
            DataError: one of them cannot be decoded; names it.
        """
        with ThreadPoolExecutor(self.workers) as pool:  # Pillow decodes outside Python's lock
            images = [image for image, _ in pool.map(self.folder.__getitem__, index.tolist())]
        whole = torch.stack(images) if images else torch.empty(0, 3, *2 * (self.folder.size,), dtype=torch.uint8)
        x = center_crop(whole, self.side).float().div_(255)
        return x if self.prepare is None else self.prepare(x)
