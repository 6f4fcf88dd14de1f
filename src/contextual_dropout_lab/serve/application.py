"""The server of the live page: three files and three addresses that answer in JSON."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp
from torch import Tensor

from contextual_dropout_lab.report.method_names import label_of
from contextual_dropout_lab.serve.digit_strokes import DIGITS
from contextual_dropout_lab.serve.drawings import render
from contextual_dropout_lab.serve.guard import Guard
from contextual_dropout_lab.serve.live_networks import LiveNetworks
from contextual_dropout_lab.serve.refusal import Refusal
from contextual_dropout_lab.serve.requests import (
    MAX_DRAWING,
    MAX_DRAWINGS,
    MAX_IMAGES,
    MAX_NOISE,
    MAX_SAMPLES,
    MAX_UPLOAD,
    RequestMemory,
    gone,
    in_words,
    read_body,
    read_strokes,
)
from contextual_dropout_lab.serve.responses import Answer
from contextual_dropout_lab.serve.static_files import FILES
from contextual_dropout_lab.serve.uploads import open_image, to_pixels

__all__ = ["VisitorAnswer", "create_app"]

log = logging.getLogger("contextual_dropout_lab.serve")

#: Visitors who wait for an answer; more are asked to come again.
MAX_WAITING = 200


@dataclass(frozen=True)
class VisitorAnswer:
    """An answer to a visitor.

    Attributes:
        shape: (C, H, W) of the image that the networks saw.
        pixels: of it, row by row, channel after channel, 0 to 255.
        answers: of the networks.
    """

    shape: tuple[int, int, int]
    pixels: list[int]
    answers: list[Answer]


class AnswerSettings(BaseModel):
    """The settings that a visitor chooses beside the image."""

    noise: float = Field(0.0, ge=0, le=MAX_NOISE, allow_inf_nan=False)
    samples: int = Field(20, ge=2, le=MAX_SAMPLES)
    seed: int = Field(0, ge=0, lt=2**32)


def create_app(live: LiveNetworks, host: str = "127.0.0.1") -> ASGIApp:
    """The application.

    Args:
        live: the networks that answer.
        host: the address that it will be bound to, which decides who may ask: see
            :class:`~contextual_dropout_lab.serve.guard.Guard`.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)  # those pages load scripts from elsewhere
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(RequestValidationError, _misunderstood)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(Exception, _failed)
    queue = _RequestQueue(live)
    for path, (content, kind) in FILES.items():
        app.add_api_route(path, partial(_file, content, kind), response_model=None)
    app.add_api_route("/api/about", queue.about)
    app.add_api_route("/api/drawing", queue.drawing, methods=["POST"])
    app.add_api_route("/api/image", queue.image, methods=["POST"])
    return Guard(app, host)


class _RequestQueue:
    """Takes requests and queues them for the one thread that computes, so that the server itself never waits."""

    def __init__(self, live: LiveNetworks) -> None:
        self._live = live
        self._thread = anyio.CapacityLimiter(1)
        self._drawings, self._images = RequestMemory(MAX_DRAWINGS), RequestMemory(MAX_IMAGES)

    def about(self) -> dict[str, Any]:
        """All values that the page needs."""
        live, config = self._live, self._live.config
        drawable = live.shape[0] == 1
        return {
            "name": config.name,
            "methods": [label_of(asdict(each)) for _, each in live.networks],
            "shape": live.shape,
            "drawable": drawable,
            "noise": {"trained": config.noise_sd, "most": min(MAX_NOISE, max(1.0, 2 * config.noise_sd))},
            "samples": {"usual": min(config.samples, MAX_SAMPLES), "most": MAX_SAMPLES},
            "threshold": live.threshold,
            "worth": [tested.worth for tested in live.track_records if tested.worth],
            "upload": MAX_UPLOAD,
            "examples": DIGITS if drawable and live.classes == tuple(DIGITS) else {},
        }

    async def drawing(self, request: Request, settings: Annotated[AnswerSettings, Query()]) -> VisitorAnswer:
        """Answer for strokes."""
        if self._live.shape[0] != 1:
            raise Refusal(422, "This network reads photographs in colour: send an image file.")
        with self._drawings.visitor() as take:
            strokes = read_strokes(await read_body(request, MAX_DRAWING, take))
            return await self._answer(request, settings, lambda: render(strokes, self._live.frame))

    async def image(self, request: Request, settings: Annotated[AnswerSettings, Query()]) -> VisitorAnswer:
        """Answer for an image file."""
        channels, frame = self._live.shape[0], self._live.frame
        with self._images.visitor() as take:
            content = await read_body(request, MAX_UPLOAD, take)
            return await self._answer(request, settings, lambda: to_pixels(open_image(content), channels, frame))

    async def _answer(self, request: Request, settings: AnswerSettings, image: Callable[[], Tensor]) -> VisitorAnswer:
        if self._thread.statistics().tasks_waiting >= MAX_WAITING:
            raise Refusal(503, "Too many visitors are waiting: try again in a moment.")
        async with self._thread:
            if await request.is_disconnected():
                raise gone()
            return await run_sync(self._compute, settings, image)

    def _compute(self, settings: AnswerSettings, image: Callable[[], Tensor]) -> VisitorAnswer:
        x = self._live.noisy(image(), settings.noise, settings.seed)
        pixels = x.clamp(0, 1).mul(255).round().int().flatten().tolist()
        return VisitorAnswer(self._live.shape, pixels, self._live.answers(x, settings.samples, settings.seed))


def _file(content: bytes, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JSONResponse({"error": error.reason}, error.status)


def _misunderstood(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"error": f"This cannot be done: {in_words(error.errors())}"}, 422)


def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": f"There is nothing here: {error.detail}."}, error.status_code)


def _failed(request: Request, error: Exception) -> Response:
    log.error("%s failed", request.url.path)  # the traceback is logged by the server
    return JSONResponse({"error": "Something went wrong here; the server's log says what."}, 500)
