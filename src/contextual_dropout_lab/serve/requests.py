"""Limits on requests: their size, how long they may take, and their form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import anyio
from fastapi import Request
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import ClientDisconnect

from contextual_dropout_lab.serve.drawings import Stroke
from contextual_dropout_lab.serve.refusal import Refusal

__all__ = [
    "MAX_DRAWING",
    "MAX_DRAWINGS",
    "MAX_IMAGES",
    "MAX_NOISE",
    "MAX_SAMPLES",
    "MAX_UPLOAD",
    "RequestMemory",
    "gone",
    "in_words",
    "read_body",
    "read_strokes",
]

#: Bytes of an image file and of a drawing.
MAX_UPLOAD, MAX_DRAWING = 8 * 2**20, 2**19
#: Bytes of all visitors' images, and of their drawings, that are held at a time, from their arrival to the answer.
MAX_IMAGES, MAX_DRAWINGS = 8 * MAX_UPLOAD, 32 * MAX_DRAWING
#: Seconds in which they have to be here.
PATIENCE = 30
#: The most sampled masks, and the largest standard deviation of noise on pixels from 0 to 1.
MAX_SAMPLES, MAX_NOISE = 100, 3.0
MAX_POINTS = 10_000

Coordinate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Drawing(BaseModel):
    """Strokes in a unit square, x to the right and y downwards."""

    strokes: Annotated[list[Annotated[list[tuple[Coordinate, Coordinate]], Field(min_length=1)]], Field(min_length=1)]


def gone() -> Refusal:
    """The answer for a visitor who has left."""
    return Refusal(499, "The visitor has left.")


class RequestMemory:
    """Memory for the requests of all visitors: bytes count on arrival, as the length in a header may be wrong.

    Args:
        size: in bytes, for all of them.
    """

    def __init__(self, size: int) -> None:
        self.size, self.held = size, 0

    @contextmanager
    def visitor(self) -> Iterator[Callable[[int], None]]:
        """Reserve memory for one visitor: call what this gives with the size of each part; all is freed at the end."""
        own = 0

        def take(count: int) -> None:
            nonlocal own
            if self.held + count > self.size:
                raise Refusal(503, "Too many visitors are sending something: try again in a moment.")
            own += count
            self.held += count

        try:
            yield take
        finally:
            self.held -= own


async def read_body(request: Request, limit: int, take: Callable[[int], None]) -> bytes:
    """The body of a request, of which no more than ``limit`` bytes are taken in, whatever its header says.

    Args:
        request: what a visitor sends.
        limit: in bytes.
        take: of a :class:`RequestMemory`.

    Raises:
        Refusal: it is too long, too slow or empty, there is no room for it, or nobody waits for the answer.
    """
    too_long = Refusal(413, f"That is too large: at most {limit / 2**20:g} MiB are taken.")
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or int(declared) > limit:
        raise too_long
    body = bytearray()
    try:
        with anyio.fail_after(PATIENCE):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limit:
                    raise too_long
                take(len(chunk))
                body += chunk
    except TimeoutError as error:
        raise Refusal(408, f"The request took longer than {PATIENCE} seconds to arrive.") from error
    except ClientDisconnect as error:
        raise gone() from error
    if not body:
        raise Refusal(422, "Nothing was sent.")
    return bytes(body)


def read_strokes(body: bytes) -> list[Stroke]:
    """The strokes of a drawing.

    Raises:
        Refusal: it is not one.
    """
    try:
        strokes = Drawing.model_validate_json(body).strokes
    except ValidationError as error:
        reason = in_words(error.errors(include_url=False, include_context=False, include_input=False))
        raise Refusal(422, f"This is not a drawing: {reason}") from error
    points = sum(map(len, strokes))
    if points > MAX_POINTS:
        raise Refusal(413, f"The drawing has {points} points: expected at most {MAX_POINTS}.")
    return list(strokes)


def in_words(errors: Sequence[Any]) -> str:
    """The first of pydantic's errors as a sentence.

    Example:
        >>> in_words([{"loc": ("query", "samples"), "msg": "Input should be less than or equal to 100"}])
        'samples: input should be less than or equal to 100.'
    """
    where = [str(part) for part in errors[0]["loc"] if part not in ("query", "body")]
    message = str(errors[0]["msg"])
    return ": ".join(filter(None, (" ".join(where), message[:1].lower() + message[1:]))) + "."
