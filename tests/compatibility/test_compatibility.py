"""The networks of transformers, each through every check; those of other packages are run by hand, see ``table``."""

from __future__ import annotations

import contextlib
import json
import warnings

import pytest

from tests.compatibility import packages
from tests.compatibility.checks import CHECKS, NotApplicable
from tests.compatibility.hugging_face import NETWORKS
from tests.compatibility.networks import Network
from tests.compatibility.table import RECORD


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_network(network: Network, check: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a conversion leaves, it says; and what others deprecate is theirs
        if check in network.failing:
            with pytest.raises(Exception, match=network.failing[check]):
                CHECKS[check](network)
        else:
            with contextlib.suppress(NotApplicable):
                CHECKS[check](network)


def test_the_record_is_of_all_networks() -> None:
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["networks"]
    listed = [(network.package, network.name) for network in (*NETWORKS, *packages.NETWORKS)]
    assert [(row["package"], row["network"]) for row in rows] == listed
    assert len(listed) == len(set(listed)) > 25
    assert all(set(row["checks"]) == set(CHECKS) for row in rows if "refused" not in row)
