"""A real HTTP server on this machine, with files and with faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """The answer for a path; ``declared`` is the Content-Length if it is not that of the body."""

    body: bytes
    declared: int | None = None
    endless: bool = False
    chunked: bool = False


class Handler(BaseHTTPRequestHandler):
    answers: dict[str, Answer]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        answer = self.answers.get(self.path)
        if answer is None:
            self.send_error(404)
            return
        self.send_response(200)
        if answer.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif not answer.endless:
            self.send_header("Content-Length", str(len(answer.body) if answer.declared is None else answer.declared))
        self.end_headers()
        self.wfile.write(answer.body)
        try:
            while answer.endless:
                self.wfile.write(bytes(2**16))
        except OSError:  # the client has seen enough
            pass

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(answers: dict[str, Answer]) -> Iterator[tuple[str, list[str]]]:
    """The server's address, with a slash at the end, and the paths that it was asked for."""
    asked: list[str] = []
    handler = type("Handler", (Handler,), {"answers": answers, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", asked
        finally:
            server.shutdown()
            thread.join()


def closed_port() -> str:
    """An address at which nobody listens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        return f"http://127.0.0.1:{server.server_port}/"
