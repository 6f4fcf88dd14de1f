"""The files of the page, read once."""

from __future__ import annotations

from importlib import resources

__all__ = ["FILES"]

_FOLDER = resources.files("contextual_dropout_lab.serve") / "static"
#: Content and type by path.
FILES: dict[str, tuple[bytes, str]] = {
    path: ((_FOLDER / name).read_bytes(), kind)
    for path, name, kind in (
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/style.css", "style.css", "text/css; charset=utf-8"),
        ("/page.js", "page.js", "text/javascript; charset=utf-8"),
    )
}
