"""GloVe's vectors in the embedding that a run starts with, and never those of other words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from contextual_dropout_lab.data.vqa import WordVocabulary
from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.runs.config import RunConfig, load_experiment
from contextual_dropout_lab.runs.methods import build_model
from contextual_dropout_lab.runs.word_vectors import require_word_vectors, write_word_vectors

WORDS = WordVocabulary(("what", "is", "it"))
SKIP = load_experiment("vqa").run("original", "mc-bernoulli", 0, "paper").weights_skip


def config(path: Path) -> RunConfig:
    options = {"size": "tiny", "words": 7, "embedding": 2}
    values = {"network": "mcan", "network_options": options, "weights": str(path), "weights_skip": SKIP}
    return RunConfig("vqa", "original", "mc-bernoulli", 0, **values)  # type: ignore[arg-type]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    glove = tmp_path / "glove.txt"
    glove.write_text("it 5 6\nwhat 1 2\nwhy 7 8\n")
    path = tmp_path / "glove.safetensors"
    assert write_word_vectors(config(path), WORDS, glove, path) == ("is",)
    return path


def test_a_network_starts_with_them(written: Path) -> None:
    """Rows 0 and 1 are "no word" and "unknown"; beyond the words the embedding has room."""
    require_word_vectors(config(written), WORDS)
    model = build_model(config(written), (2, 6), 3, written)
    rows = model.get_submodule("embedding").weight.detach()
    assert rows[[0, 2, 4, 5, 6]].tolist() == [[0, 0], [1, 2], [5, 6], [0, 0], [0, 0]]
    assert rows[[1, 3]].abs().min() > 0  # drawn
    plain = build_model(config(written), (2, 6), 3)
    for name, value in plain.state_dict().items():
        assert name == "embedding.weight" or torch.equal(value, model.state_dict()[name])


@pytest.mark.parametrize("others", [("what", "it", "is"), ("what", "is", "it", "now")])
def test_vectors_of_other_words_are_refused(written: Path, others: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="of other questions than those that vqa/original/mc-bernoulli/seed-0 trains"):
        require_word_vectors(config(written), WordVocabulary(others))


def test_other_files_are_none_of_its_business(tmp_path: Path) -> None:
    require_word_vectors(config(tmp_path / "missing.safetensors"), WORDS)
    (tmp_path / "other.pth").write_bytes(b"weights")
    require_word_vectors(config(tmp_path / "other.pth"), WORDS)
