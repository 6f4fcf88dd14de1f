"""Rules for equal answers, and for how far the humans have to agree: those of https://visualqa.org/evaluation.

Where the page and the evaluation program differ, the program is followed, for all published numbers come from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, get_args

from contextual_dropout_lab.data.vqa.contractions import CONTRACTIONS

__all__ = [
    "ANSWER_TYPES",
    "AnswerType",
    "Prepare",
    "Score",
    "answer_accuracy",
    "answer_type",
    "any_match",
    "capped",
    "evaluated",
    "leave_one_out",
    "normalize_answer",
    "normalized",
    "strip_punctuation",
]

AnswerType = Literal["yes/no", "number", "other"]

#: The types by their index.
ANSWER_TYPES: tuple[AnswerType, ...] = get_args(AnswerType)

#: The accuracy of an answer that ``matches`` of ``humans`` people gave: (matches, humans) to [0, 1].
Score = Callable[[int, int], float]

#: The form in which answers of humans are compared: :func:`normalized` or :func:`evaluated`.
Prepare = Callable[[Sequence[str]], list[str]]

#: Neither apostrophe nor colon: they tell "girl's" from "girls", and the time.
PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
COMMA_IN_NUMBER = re.compile(r"\d,\d")
PERIOD = re.compile(r"\.(?!\d)")

NUMBERS = {
    "none": "0",
    "zero": "0",
    "one": "1",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
}
ARTICLES = {"a", "an", "the"}

#: How many people have to give an answer for it to be right.
AGREEMENT = 3


def strip_punctuation(text: str) -> str:
    """The text without punctuation, except for apostrophes, colons and periods before a digit.

    A mark becomes a space. It vanishes if it stands beside a space anywhere in the text, or if the text has a comma
    between two digits: the page says this of that comma only, the program does it to all marks of such a text.

    Example:
        >>> strip_punctuation("black-and-white"), strip_punctuation("yes, sir"), strip_punctuation("$1,000.50.")
        ('black and white', 'yes sir', '$1000.50')
    """
    joined = COMMA_IN_NUMBER.search(text) is not None
    beside_space = {mark for mark in PUNCTUATION if f"{mark} " in text or f" {mark}" in text}
    marks = {ord(mark): "" if joined or mark in beside_space else " " for mark in PUNCTUATION}
    # The program stops after 32 periods (it passes a flag for the count), which no answer has.
    return PERIOD.sub("", text.translate(marks))


@lru_cache(maxsize=2**16)  # most of the answers of a data set are the same few
def normalize_answer(answer: str) -> str:
    """The answer as it is compared: lower case, no punctuation, digits for number words, no articles, apostrophes.

    Newlines and tabs are spaces; see :func:`strip_punctuation` for what is punctuation. Number words are those from
    zero to ten, and "none", which is 0.

    Example:
        >>> [normalize_answer(answer) for answer in ("A dog.", "Two", "1,000", "dont know", "10:30 A.M.")]
        ['dog', '2', '1000', "don't know", '10:30 am']
    """
    text = strip_punctuation(answer.replace("\n", " ").replace("\t", " ").strip())
    words = (NUMBERS.get(word, word) for word in text.lower().split())
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ARTICLES)


def capped(matches: int, humans: int) -> float:
    """``min(matches / 3, 1)``: the formula of the paper (C.2), whatever the number of humans.

    Example:
        >>> [round(capped(matches, 10), 2) for matches in range(5)]
        [0.0, 0.33, 0.67, 1.0, 1.0]
    """
    return min(matches / AGREEMENT, 1.0)


def leave_one_out(matches: int, humans: int) -> float:
    """The official accuracy: :func:`capped` averaged over all sets that leave one human out.

    ``(n min((n - 1) / 3, 1) + (H - n) min(n / 3, 1)) / H`` for n matches of H humans. For ten humans these are the
    scores 0, 0.3, 0.6, 0.9, 1, 1, ... that MCAN takes for targets.

    Example:
        >>> [round(leave_one_out(matches, 10), 2) for matches in range(5)]
        [0.0, 0.3, 0.6, 0.9, 1.0]
    """
    left_in, left_out = capped(matches, humans - 1), capped(max(matches - 1, 0), humans - 1)
    return (matches * left_out + (humans - matches) * left_in) / humans


def any_match(matches: int, humans: int) -> float:
    """1 if anybody gave the answer, for data sets with one right answer, or a list of them.

    Example:
        >>> any_match(0, 1), any_match(1, 1)
        (0.0, 1.0)
    """
    return float(matches > 0)


def normalized(humans: Sequence[str]) -> list[str]:
    """The human answers as MCAN is trained on them: each by :func:`normalize_answer`.

    Example:
        >>> normalized(["none", "0", "t-shirt"])
        ['0', '0', 't shirt']
    """
    return [normalize_answer(human) for human in humans]


def evaluated(humans: Sequence[str]) -> list[str]:
    """The human answers as the official program compares them: by :func:`strip_punctuation` only.

    And not even that if they are all the same. It leaves case, number words and articles alone, since they are
    published without; but "none" and "one way" are not, and nobody is right who answers "0" and "1 way".

    Example:
        >>> evaluated(["none", "0", "t-shirt"]), evaluated(["t-shirt", "t-shirt"])
        (['none', '0', 't shirt'], ['t-shirt', 't-shirt'])
    """
    differ = len(set(humans)) > 1
    return [strip_punctuation(human) for human in humans] if differ else list(humans)


def answer_accuracy(answer: str, humans: Sequence[str], score: Score = leave_one_out) -> float:
    """The accuracy of an answer as the official program gives it: normalised, among the :func:`evaluated` humans.

    Args:
        answer: that of a model.
        humans: those of the people, ten in VQA v2.
        score: :func:`leave_one_out`, or :func:`capped` for the paper's.

    Returns:
        In [0, 1].

    Example:
        >>> humans = ["ball"] * 2 + ["t-ball"] * 8
        >>> answer_accuracy("A ball.", humans), answer_accuracy("t ball", humans), answer_accuracy("dog", humans)
        (0.6, 1.0, 0.0)
    """
    if not humans:
        raise ValueError("there are no human answers: expected at least one, VQA v2 has ten; is this the test part?")
    return score(evaluated(humans).count(normalize_answer(answer)), len(humans))


def answer_type(answer: str) -> AnswerType:
    """The type of a normalised answer, for data sets that do not say it.

    Example:
        >>> answer_type("no"), answer_type("12"), answer_type("red")
        ('yes/no', 'number', 'other')
    """
    if answer in ("yes", "no"):
        return "yes/no"
    return "number" if answer.replace(".", "", 1).isdecimal() else "other"
