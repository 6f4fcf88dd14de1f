"""A guard between visitors and the page: who may ask, and what a browser may do with the answer."""

from __future__ import annotations

import ipaddress
import json
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Guard", "is_loopback"]

#: The page may load and ask nothing but what this server gives.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address.

    Example:
        >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
        (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


class Guard:
    """Wraps the application, so that its error pages have the headers too.

    * Bound to this machine only, it answers to this machine's names only: a site elsewhere whose name is made to point
      here (DNS rebinding) is refused.
    * Requests that another site's page sends are refused.

    Args:
        app: what answers.
        host: the address that the server is bound to.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app = app
        self.local = is_loopback(host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        reason = self._refused(Headers(scope=scope))
        if reason is None:
            await self.app(scope, receive, send_guarded)
        else:
            await _refuse(reason, send_guarded)

    def _refused(self, headers: Headers) -> str | None:
        asked = headers.get("host", "")
        origin = headers.get("origin", f"http://{asked}")
        try:
            name, sender = urlsplit(f"http://{asked}").hostname or "", urlsplit(origin).netloc
        except ValueError:  # brackets that do not match
            return "The address in the request is not valid."
        if self.local and not is_loopback(name):
            return "This page is served to this machine only: open it as http://127.0.0.1 with its port."
        if sender.lower() != asked.lower():
            return "Another site's page may not send requests here."
        return None


async def _refuse(reason: str, send: Send) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
