from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.ranks import Together, two_processes


@pytest.fixture(scope="session")
def together() -> Iterator[Together]:
    with two_processes() as run:
        yield run
