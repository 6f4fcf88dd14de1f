from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_dropout_lab.data import DataError, LabelledImages, split_validation
from contextual_dropout_lab.data.splits import taking_turns


def numbered(labels: list[int]) -> LabelledImages:
    """Every image is its own number, in two bytes."""
    images = torch.tensor([[[i // 256, i % 256]] for i in range(len(labels))], dtype=torch.uint8)
    return LabelledImages(images, torch.tensor(labels), ("a", "b", "c", "d"))


def numbers(data: LabelledImages) -> list[int]:
    return [256 * high + low for high, low in data.images.flatten(1).tolist()]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=60), st.integers(0, 5), st.data())
def test_the_parts_are_disjoint_complete_and_stratified(labels: list[int], seed: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(labels) - 1))
    train, validation = split_validation(numbered(labels), size, seed)
    assert len(validation) == size
    assert sorted(numbers(train) + numbers(validation)) == list(range(len(labels)))
    for part in (train, validation):
        assert numbers(part) == sorted(numbers(part))
        assert part.labels.tolist() == [labels[i] for i in numbers(part)]
    for c in range(4):
        share = size * labels.count(c) / len(labels)
        assert abs(int((validation.labels == c).sum()) - share) < 1


def test_the_split_is_fixed_by_its_seed() -> None:
    data = numbered([0, 1] * 50)
    first, again, other = (numbers(split_validation(data, 20, seed)[1]) for seed in (0, 0, 1))
    assert first == again != other
    assert first[:5] == [3, 12, 15, 20, 25]  # on every machine and with every version


@pytest.mark.parametrize("size", [-1, 0, 10, 11])
def test_neither_part_may_be_empty(size: int) -> None:
    with pytest.raises(DataError, match=f"size is {size}: expected 1 to 9"):
        split_validation(numbered([0] * 10), size)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60))
def test_classes_take_turns(labels: list[int]) -> None:
    order = taking_turns(torch.tensor(labels, dtype=torch.int64)).tolist()
    assert sorted(order) == list(range(len(labels)))
    turns = [(labels[: row + 1].count(labels[row]), labels[row]) for row in order]
    assert turns == sorted(turns)
