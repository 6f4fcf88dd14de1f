"""The data of runs on visual question answering.

============= ===================================================== ==========================
easy-vqa      a coloured shape; 13 answers, one of them right       patches of 16 by 16 pixels
daquar        photographs of rooms; one or several right answers    patches of 20 by 20 pixels
vqa-v2        photographs; ten human answers                        bottom-up regions
vqa-v2-sound  the same without bad records, which are counted       bottom-up regions
============= ===================================================== ==========================

On VQA v2 networks learn, as MCAN does, the official accuracy of each answer (0.3, 0.6, 0.9 or 1), and are tested by the
paper's formula, min(n / 3, 1). Features are in one file for each part (``features-train.h5``), or in a folder of one
file an image (``features-train``). Words may start with GloVe's vectors: see
:mod:`contextual_dropout_lab.runs.word_vectors`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from contextual_dropout_lab.data.lookup import Lookup, Rows
from contextual_dropout_lab.data.vqa import (
    ANSWER_TYPES,
    AnswerVocabulary,
    Hdf5Features,
    NpzFeatures,
    Questions,
    VisualQuestions,
    any_match,
    build_answers,
    build_words,
    capped,
    daquar,
    easy_vqa,
    evaluated,
    leave_one_out,
    mcan_answers,
    normalized,
    patches,
    soft_targets,
    vqa_v2,
)
from contextual_dropout_lab.data.vqa.answers import Prepare, Score
from contextual_dropout_lab.data.vqa.question_files import OnBad, vqa_v2_files
from contextual_dropout_lab.data.vqa.words import WordVocabulary
from contextual_dropout_lab.errors import ConfigError, ExperimentError
from contextual_dropout_lab.runs.config import RunConfig
from contextual_dropout_lab.runs.run_data import Examples
from contextual_dropout_lab.runs.word_vectors import require_word_vectors

__all__ = ["QUESTION_DATA", "QuestionExamples", "load_question_examples", "question_words", "questions_tested_on"]

Directory = str | os.PathLike[str] | None
#: The side of the patches that stand for regions.
PATCH = {"easy-vqa": 16, "daquar": 20}
#: One image in this many is held out for validation: questions on one image stay together. Of VQA v2 a fifth, as in the
#: paper, which draws it of all questions.
HELD_OUT, HELD_OUT_OF_VQA = 4, 5
#: Bytes of each predicted probability: three copies in double precision while they are made, scored and stored.
BYTES = 24


@dataclass(frozen=True)
class QuestionExamples(Examples):
    """Examples of which some records of the files may have been left out.

    Attributes:
        skipped: of the training and the test questions, how many and why; nothing of parts that are complete.
    """

    skipped: dict[str, dict[str, int]] = field(default_factory=dict)


def load_question_examples(config: RunConfig, directory: Directory = None) -> QuestionExamples:
    """Questions, regions of their images and soft answers, as the configuration asks for them.

    Raises:
        ConfigError: the network knows too few words, starts with vectors of others, or predictions of this many test
            questions would not fit in memory.
    """
    train, test, answers = _LOADERS[config.data](config, directory)
    train, test = _chosen(train, config.train_examples), _chosen(test, config.test_examples)
    _require_memory(config, len(test[0]), len(answers))
    words = _words(config, train)
    require_word_vectors(config, words)
    x, y, beside = _tensors(train, words, answers, leave_one_out, normalized)
    test_x, test_y, test_beside = _tensors(test, words, answers, capped, evaluated)
    return QuestionExamples(
        x,
        y,
        test_x,
        test_y,
        answers.answers,
        {"train": train[0].sha256, config.split: test[0].sha256},
        beside=(beside,),
        test_beside=(test_beside,),
        test_groups=test[0].answer_types,
        group_names=ANSWER_TYPES,
        skipped={name: bad for name, part in (("train", train), (config.split, test)) if (bad := _skipped(part))},
    )


def questions_tested_on(config: RunConfig, directory: Directory = None) -> VisualQuestions:
    """The questions that a run was tested on, with the images, to be shown."""
    _, test, _ = _LOADERS[config.data](config, directory)
    asked, _ = _chosen(test, config.test_examples)
    if not isinstance(asked, VisualQuestions):
        raise ExperimentError(f"of {config.data} there are features only, no images to show")
    return asked


def question_words(config: RunConfig, directory: Directory = None) -> WordVocabulary:
    """The words of the questions that a run trains on.

    Raises:
        ConfigError: the network knows too few.
    """
    train, _, _ = _LOADERS[config.data](config, directory)
    return _words(config, _chosen(train, config.train_examples))


AnyQuestions = Questions | VisualQuestions
#: Questions, and a row of a table of image regions for each.
Part = tuple[AnyQuestions, Lookup]


def _easy_or_daquar(config: RunConfig, directory: Directory) -> tuple[Part, Part, AnswerVocabulary]:
    load: Callable[..., VisualQuestions] = {"easy-vqa": easy_vqa, "daquar": daquar}[config.data]
    train = load("train", directory)
    if config.split == "validation":
        held_out = train.rows % HELD_OUT == 0
        test = train.subset(held_out.nonzero().flatten().tolist())
        train = train.subset((~held_out).nonzero().flatten().tolist())
    else:
        test = load("test", directory)
    answers = build_answers((answer for given in train.answers for answer in given), min_count=1)
    return (train, _patched(train, config.data)), (test, _patched(test, config.data)), answers


def _patched(asked: VisualQuestions, name: str) -> Lookup:
    size = PATCH[name]
    height, width = (side // size * size for side in asked.images.shape[-2:])
    # From -1 to 1: a black patch must not look like padding, which is zero.
    return Lookup(2 * patches(asked.images[..., :height, :width], size) - 1, asked.rows)


def _vqa_v2(config: RunConfig, directory: Directory, on_bad: OnBad) -> tuple[Part, Part, AnswerVocabulary]:
    answers = mcan_answers(directory)
    train = _official("train", directory, on_bad)
    if config.split == "test":  # that part of which the answers are public, val
        return train, _official("val", directory, on_bad), answers
    apart = torch.tensor([record.image_id % HELD_OUT_OF_VQA == 0 for record in train[0].records])
    return _subset(train, (~apart).nonzero().flatten()), _subset(train, apart.nonzero().flatten()), answers


def _official(split: str, directory: Directory, on_bad: OnBad) -> tuple[Questions, Lookup]:
    folder = vqa_v2_files(split, directory)[0].parent
    path = folder / f"features-{split}.h5"
    features = Hdf5Features(path) if path.is_file() else NpzFeatures(folder / f"features-{split}")
    asked = vqa_v2(split, directory, images=features.image_ids, on_bad=on_bad)
    ids = sorted(features.image_ids)
    row = {image: number for number, image in enumerate(ids)}
    rows = torch.tensor([row[record.image_id] for record in asked.records], dtype=torch.int64)
    return asked, Lookup(_OnDisk(features, ids), rows)


class _OnDisk(Rows):
    """Regions that are read when they are asked for."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, features: NpzFeatures | Hdf5Features, ids: Sequence[int]) -> None:
        self.features, self.ids = features, ids

    @property
    def shape(self) -> torch.Size:
        return torch.Size([len(self.ids), self.features.regions, self.features.size])

    def is_floating_point(self) -> bool:
        return True

    def index_select(self, dim: int, index: Tensor, /) -> Tensor:
        return self.features.load([self.ids[row] for row in index.tolist()]).features


_LOADERS: dict[str, Callable[[RunConfig, Directory], tuple[Part, Part, AnswerVocabulary]]] = {
    "easy-vqa": _easy_or_daquar,
    "daquar": _easy_or_daquar,
    "vqa-v2": partial(_vqa_v2, on_bad="raise"),
    "vqa-v2-sound": partial(_vqa_v2, on_bad="skip"),
}
#: The data sets of questions.
QUESTION_DATA = tuple(_LOADERS)


def _chosen(part: Part, count: int | None) -> Part:
    """A given number of the questions, always the same draw: those in a row are on few images."""
    size = len(part[0])
    if count is None or count >= size:
        return part
    return _subset(part, torch.randperm(size, generator=torch.Generator().manual_seed(0))[:count].sort().values)


def _subset(part: Part, indices: Tensor) -> Part:
    asked, lookup = part
    return asked.subset(indices.tolist()), Lookup(lookup.table, lookup.rows[indices])


def _skipped(part: Part) -> dict[str, int]:
    asked, _ = part
    return asked.skipped if isinstance(asked, Questions) else {}


def _texts(asked: AnyQuestions) -> Sequence[str]:
    return asked.texts if isinstance(asked, Questions) else asked.questions


def _words(config: RunConfig, train: Part) -> WordVocabulary:
    words = build_words(_texts(train[0]))
    if len(words) > (known := config.network_options.get("words", 0)):
        raise ConfigError(
            f"the questions of {config.data} have {len(words)} words: set network_options.words to that, not {known}"
        )
    return words


def _require_memory(config: RunConfig, questions: int, answers: int) -> None:
    """Refuse before training what will not fit: all samples of all answers are held until they are scored."""
    draws = sum(config.noise_draws if sd > 0 else 1 for sd in {config.noise_sd, *config.test_noise_sd})
    each, memory = BYTES * draws * config.samples * answers, _memory()
    if each * questions > memory:
        raise ConfigError(
            f"{config.samples} samples of {answers:,} answers to {questions:,} test questions take about "
            f"{each * questions / 1e9:.0f} GB of memory, and there are {memory / 1e9:.0f}: set test_examples to "
            f"{memory // each:,} or less"
        )


def _memory() -> int:
    """Bytes that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _tensors(
    part: Part, words: WordVocabulary, answers: AnswerVocabulary, score: Score, prepare: Prepare
) -> tuple[Lookup, Tensor, Tensor]:
    """Regions, soft answers (N, 2, S) and word numbers (N, T); ``score`` is for answers of ten people."""
    asked, lookup = part
    if isinstance(asked, Questions):
        targets = soft_targets(asked.answers, answers, score, prepare)
    else:
        targets = soft_targets(asked.answers, answers, any_match)
    return lookup, torch.stack([targets.answers.float(), targets.scores], 1), words.encode(_texts(asked))
