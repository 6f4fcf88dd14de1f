"""Questions on images in memory, for the data sets that are small enough."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from contextual_dropout_lab.data.data_error import DataError
from contextual_dropout_lab.data.formats.jpeg_png import MAX_PIXELS, check_scans
from contextual_dropout_lab.data.vqa.answers import ANSWER_TYPES, answer_type

__all__ = ["MAX_MEMORY", "VisualQuestions", "decode_whole", "stack_images"]

#: Images that take more memory than this, all of a set, are refused: 2 GiB; those of easy-VQA take 0.05.
MAX_MEMORY = 2**31


@dataclass(frozen=True, eq=False)
class VisualQuestions:
    """N questions on M images.

    Args:
        images: (M, 3, H, W) uint8.
        rows: (N,) int64, the image that each question is on.
        questions: as they are asked.
        answers: the right ones, one or several for each question.

    Attributes:
        sha256: over the images, the rows, questions and answers: says in a result which data it was made of.

    Example:
        >>> image = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
        >>> data = VisualQuestions(image, torch.tensor([0, 0]), ("is it red?", "what is it?"), (("no",), ("cube",)))
        >>> len(data), data.answer_types, data.subset([1]).questions
        (2, tensor([0, 2]), ('what is it?',))
    """

    images: Tensor
    rows: Tensor
    questions: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        _check(self)
        digest = hashlib.sha256(self.images.contiguous().numpy().data)
        digest.update(self.rows.numpy().astype("<i8").tobytes())
        digest.update(repr((self.questions, self.answers)).encode())
        object.__setattr__(self, "sha256", digest.hexdigest())

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def answer_types(self) -> Tensor:
        """(N,) int64, indices of :data:`ANSWER_TYPES`, decided by the first answer."""
        return torch.tensor([ANSWER_TYPES.index(answer_type(answers[0])) for answers in self.answers])

    def subset(self, indices: Sequence[int]) -> VisualQuestions:
        """The questions of these indices, in their order, on the same images."""
        rows = self.rows[torch.tensor(list(indices), dtype=torch.int64)]
        questions = tuple(self.questions[index] for index in indices)
        return VisualQuestions(self.images, rows, questions, tuple(self.answers[index] for index in indices))


def decode_whole(content: bytes | memoryview, name: str) -> Tensor:
    """A JPEG or PNG file as it is, not cut: questions may be on anything in it.

    Returns:
        (3, H, W) uint8.

    Raises:
        DataError: the file is truncated, damaged, neither JPEG nor PNG, or of too many pixels; names it.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("images are decoded by Pillow, which is not installed: pip install pillow") from error
    try:
        check_scans(content)
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"it declares {image.width} by {image.height} pixels, more than {MAX_PIXELS} in all")
            pixels = np.array(image.convert("RGB"))
    except Exception as error:  # the decoders of Pillow raise whatever comes
        raise DataError(f"{name} cannot be decoded ({error}): expected a sound JPEG or PNG file") from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


def stack_images(images: Iterable[Tensor], names: Sequence[str]) -> Tensor:
    """Images of one size in one tensor, (M, 3, H, W).

    Args:
        images: as they are decoded, one by one: what does not fit ends it.
        names: of all of them.

    Raises:
        DataError: there are none, not all are of the size of the first, or they take more than :data:`MAX_MEMORY`.
    """
    stacked: Tensor | None = None
    for row, (image, name) in enumerate(zip(images, names, strict=True)):
        if stacked is None and (size := image.nbytes * len(names)) > MAX_MEMORY:
            raise DataError(f"{len(names)} images like {name} take {size} bytes: expected at most {MAX_MEMORY}")
        stacked = image.new_empty(len(names), *image.shape) if stacked is None else stacked
        if image.shape != stacked.shape[1:]:
            found, expected = tuple(image.shape), tuple(stacked.shape[1:])
            raise DataError(f"{name} is {found}: expected {expected}, the size of {names[0]}")
        stacked[row] = image
    if stacked is None:
        raise DataError("there are no images: expected at least one")
    return stacked


def _check(data: VisualQuestions) -> None:
    images, rows, size = data.images, data.rows, len(data.questions)
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
        raise DataError(f"images are {tuple(images.shape)} of {images.dtype}: expected (M, 3, H, W) of torch.uint8")
    if rows.shape != (size,) or rows.dtype != torch.int64 or len(data.answers) != size:
        raise DataError(
            f"there are {size} questions, {len(data.answers)} answers and {tuple(rows.shape)} rows of {rows.dtype}: "
            "expected as many of each, rows of torch.int64"
        )
    if not all(data.answers):
        raise DataError("a question has no answer: expected at least one")
    if size and not 0 <= int(rows.min()) <= int(rows.max()) < len(images):
        raise DataError(f"rows are {int(rows.min())} to {int(rows.max())}: expected 0 to {len(images) - 1}, of images")
