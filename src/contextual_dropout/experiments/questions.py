"""The data of runs on visual question answering.

============= ===================================================== ==========================
easy-vqa      a coloured shape; 13 answers, one of them right       patches of 16 by 16 pixels
daquar        photographs of rooms; one or several right answers    patches of 20 by 20 pixels
vqa-v2        photographs; ten human answers                        bottom-up regions
vqa-v2-sound  the same without bad records, which are counted       bottom-up regions
============= ===================================================== ==========================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from contextual_dropout.data.lookup import Lookup, Rows
from contextual_dropout.data.vqa import (
    ANSWER_TYPES,
    AnswerVocabulary,
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
    mcan_answers,
    normalized,
    patches,
    soft_targets,
    vqa_v2,
)
from contextual_dropout.data.vqa.answers import Prepare
from contextual_dropout.data.vqa.records import OnBad, vqa_v2_files
from contextual_dropout.data.vqa.words import WordVocabulary
from contextual_dropout.experiments.config import RunConfig
from contextual_dropout.experiments.errors import ConfigError, ExperimentError
from contextual_dropout.experiments.examples import Examples

__all__ = ["QUESTION_DATA", "QuestionExamples", "load_question_examples", "questions_tested_on"]

Directory = str | os.PathLike[str] | None
#: The side of the patches that stand for regions.
PATCH = {"easy-vqa": 16, "daquar": 20}
#: Every so many-th image is held out for validation: questions on one image stay together.
HELD_OUT = 4
#: That each predicted probability takes: three copies in double precision while they are made, measured and kept.
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
        ConfigError: the network knows too few words, or predictions of so many test questions would not fit in memory.
    """
    train, test, answers = _LOADERS[config.data](config, directory)
    train, test = _chosen(train, config.train_examples), _chosen(test, config.test_examples)
    _require_memory(config, len(test[0]), len(answers))
    words = build_words(_texts(train[0]))
    if len(words) > (known := config.network_options.get("words", 0)):
        raise ConfigError(
            f"the questions of {config.data} have {len(words)} words: set network_options.words to that, not {known}"
        )
    x, y, beside = _tensors(train, words, answers, normalized)
    test_x, test_y, test_beside = _tensors(test, words, answers, evaluated)
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
    """What a run was tested on, with the images, to be shown."""
    _, test, _ = _LOADERS[config.data](config, directory)
    asked, _ = _chosen(test, config.test_examples)
    if not isinstance(asked, VisualQuestions):
        raise ExperimentError(f"of {config.data} there are features only, no images to show")
    return asked


Asked = Questions | VisualQuestions
#: Questions, and a row of a table of image regions for each.
Part = tuple[Asked, Lookup]


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
    if config.split == "validation":
        raise ConfigError("vqa-v2 is validated on its own val part, whose answers are public: set split to test")
    parts = []
    for split in ("train", "val"):
        features = NpzFeatures(vqa_v2_files(split, directory)[0].parent / f"features-{split}")
        asked = vqa_v2(split, directory, images=features.image_ids, on_bad=on_bad)
        ids = sorted(features.image_ids)
        row = {image: number for number, image in enumerate(ids)}
        rows = torch.tensor([row[record.image_id] for record in asked.records])
        parts.append((asked, Lookup(_OnDisk(features, ids), rows)))
    return parts[0], parts[1], answers


class _OnDisk(Rows):
    """Regions that are read when they are asked for."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, features: NpzFeatures, ids: Sequence[int]) -> None:
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
    """So many of the questions, drawn once and for all: those in a row are on few images."""
    asked, lookup = part
    if count is None or count >= len(asked):
        return part
    chosen = torch.randperm(len(asked), generator=torch.Generator().manual_seed(0))[:count].sort().values
    return asked.subset(chosen.tolist()), Lookup(lookup.table, lookup.rows[chosen])


def _skipped(part: Part) -> dict[str, int]:
    asked, _ = part
    return asked.skipped if isinstance(asked, Questions) else {}


def _texts(asked: Asked) -> Sequence[str]:
    return asked.texts if isinstance(asked, Questions) else asked.questions


def _require_memory(config: RunConfig, questions: int, answers: int) -> None:
    """All samples of all answers are kept until figures are taken of them: say what does not fit before training."""
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
    part: Part, words: WordVocabulary, answers: AnswerVocabulary, prepare: Prepare
) -> tuple[Lookup, Tensor, Tensor]:
    """Regions, soft answers (N, 2, S) and word numbers (N, T)."""
    asked, lookup = part
    if isinstance(asked, Questions):  # the paper's accuracy, min(n / 3, 1)
        targets = soft_targets(asked.answers, answers, capped, prepare)
    else:
        targets = soft_targets(asked.answers, answers, any_match)
    return lookup, torch.stack([targets.answers.float(), targets.scores], 1), words.encode(_texts(asked))
