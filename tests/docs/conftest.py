"""The tests of the site use the browser of the other pages."""

from tests.browser.conftest import browser, complaints, page, scheme, width

__all__ = ["browser", "complaints", "page", "scheme", "width"]
