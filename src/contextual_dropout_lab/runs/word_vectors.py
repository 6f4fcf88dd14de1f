"""GloVe's vectors as the embedding that a run's network starts with.

They are written once, for the words of the run's questions:

.. code-block:: python

    config = load_experiment("vqa").run("original", "mc-bernoulli", 0, "paper")
    write_word_vectors(config, question_words(config), "glove.840B.300d.txt", Path("glove-vqa.safetensors"))

and read by every run that has this file as its ``weights``, and all other parts of the network as its ``weights_skip``.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from contextual_dropout_lab.data.vqa import WordVocabulary, read_vectors
from contextual_dropout_lab.errors import ConfigError
from contextual_dropout_lab.models.mcan import SIZES
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.store.files import write_tensors

__all__ = ["require_word_vectors", "write_word_vectors"]

#: The metadata key for the checksum of the words that a file has vectors of.
WORDS = "words_sha256"


def write_word_vectors(
    config: RunConfig, words: WordVocabulary, glove: str | os.PathLike[str], path: Path
) -> tuple[str, ...]:
    """Write the embedding of MCAN: GloVe's vector for each word, as :func:`read_vectors` has it, and 0 beyond them.

    Args:
        config: of a run; those that train on the same questions may share a file.
        words: of its questions.
        glove: the text file, of vectors of as many numbers as the embedding has.
        path: to write, ``.safetensors``.

    Returns:
        The words that GloVe does not have, whose vectors are drawn.
    """
    sizes = SIZES[config.network_options.get("size", "small")] | config.network_options
    found = read_vectors(glove, words, torch.Generator().manual_seed(0), sizes["embedding"])
    embedding = torch.zeros(sizes["words"], sizes["embedding"])
    embedding[: len(words)] = found.vectors
    write_tensors(path, {"embedding.weight": embedding}, {WORDS: _digest(words)})
    return found.missing


def require_word_vectors(config: RunConfig, words: WordVocabulary) -> None:
    """Refuse vectors of other words: rows have only their numbers, so wrong ones would fit without an error.

    Raises:
        ConfigError: the run's ``weights`` are such vectors. Other files are not looked at.
    """
    if config.weights is None:
        return
    try:
        with safe_open(Path(config.weights).expanduser(), "pt") as file:
            written = (file.metadata() or {}).get(WORDS)
    except (OSError, SafetensorError):  # if it is not a file of weights either, loading them says so
        return
    if written not in (None, _digest(words)):
        raise ConfigError(
            f"the word vectors in {config.weights} are of other questions than those that {config.name} trains on: "
            "write them again with write_word_vectors and the configuration of this run"
        )


def _digest(words: WordVocabulary) -> str:
    return hashlib.sha256(json.dumps(words.words).encode()).hexdigest()
