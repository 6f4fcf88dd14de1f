"""A vision transformer of the same blocks as MCAN."""

from __future__ import annotations

import pytest
import torch

import contextual_dropout as cd
from contextual_dropout_lab.models import vit


def test_every_dropout_becomes_a_site() -> None:
    torch.manual_seed(0)
    x = torch.rand(8, 3, 8, 8)
    model = cd.contextualize(vit(5, 0.3, channels=3, side=8, patch=4, hidden=16, layers=3), example=x).eval()
    assert len(cd.sites(model)) == 13
    with torch.no_grad():
        assert model(x).shape == (8, 5)
        assert all(site.spread > 0 for site in cd.probe(model, x).sites.values())


def test_in_eval_the_conversion_changes_nothing() -> None:
    torch.manual_seed(0)
    x = torch.rand(4, 1, 28, 28)
    model = vit().eval()
    with torch.no_grad():
        expected = model(x)
        torch.testing.assert_close(cd.contextualize(model, example=x)(x), expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"patch": 5}, "patch must divide side"), ({"heads": 3}, "heads must divide hidden"), ({"layers": 0}, "layers")],
)
def test_bad_sizes(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vit(**wrong)  # type: ignore[arg-type]
