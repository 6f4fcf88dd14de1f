"""The rules of https://visualqa.org/evaluation, worked by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextual_dropout_lab.data.vqa import (
    ANSWER_TYPES,
    answer_accuracy,
    answer_type,
    any_match,
    capped,
    evaluated,
    leave_one_out,
    normalize_answer,
    normalized,
)
from contextual_dropout_lab.data.vqa.answers import PUNCTUATION
from contextual_dropout_lab.data.vqa.contractions import CONTRACTIONS, FORMS

CASES = {
    # lower case, spaces, newlines and tabs
    "Yes": "yes",
    "  Red   CAR ": "red car",
    "red\ncar": "red car",
    "red\tcar\n": "red car",
    "": "",
    # periods go, unless a digit follows
    "yes.": "yes",
    "U.S.A.": "usa",
    "3.5": "3.5",
    ".5": ".5",
    "3.": "3",
    "no. 5": "no 5",
    "wait...": "wait",
    "1..5": "1.5",
    # number words, none of them within a word
    "two": "2",
    "None": "0",
    "zero": "0",
    "ten dogs": "10 dogs",
    "eleven": "eleven",
    "someone": "someone",
    "one-way": "1 way",
    # articles
    "a dog": "dog",
    "An apple": "apple",
    "on the table": "on table",
    "the": "",
    "athens": "athens",
    # contractions
    "dont": "don't",
    "Dont know": "don't know",
    "don't": "don't",
    "oclock": "o'clock",
    "couldnt've": "couldn't've",
    "couldn'tve": "couldn't've",
    "couldntve": "couldntve",
    "yall'd've": "y'all'd've",
    "twas": "'twas",
    "ow's'at": "'ow's'at",
    "somebody'd": "somebodyd",
    "im": "im",
    "Id've": "id've",
    "shed": "shed",
    # apostrophes and colons stay
    "girl's": "girl's",
    "10:30": "10:30",
    "10:30 A.M.": "10:30 am",
    # punctuation is a space, or nothing beside one
    "black-and-white": "black and white",
    "t-shirt": "t shirt",
    "yes/no": "yes no",
    "yes, sir": "yes sir",
    "red,white, blue": "redwhite blue",
    "well - no": "well no",
    "(left)": "left",
    "what?!": "what",
    "a_b": "b",
    "[x];{y}": "x y",
    'say "hi"': "say hi",
    "me@home.com": "me homecom",
    "50%": "50%",
    "$5": "$5",
    "2+2=4": "2 2 4",
    "1/2": "1 2",
    # a comma between digits leaves no space, nor does any other mark then
    "1,000": "1000",
    "100,978": "100978",
    "1,000-2,000": "10002000",
    "1,a": "1",
    "t-shirt 1,000": "tshirt 1000",
    "1,000.50": "1000.50",
    # everything at once
    "The two dogs, dont they?": "2 dogs don't they",
}


@pytest.mark.parametrize(("answer", "expected"), CASES.items(), ids=repr)
def test_normalisation_by_hand(answer: str, expected: str) -> None:
    assert normalize_answer(answer) == expected


def test_every_contraction_lacks_exactly_one_apostrophe() -> None:
    regular = {short: form for short, form in CONTRACTIONS.items() if short != "somebody'd"}
    assert len(regular) == 113
    for short, form in regular.items():
        assert len(short) == len(form) - 1
        assert short.replace("'", "") == form.replace("'", "")
        assert normalize_answer(short) == normalize_answer(form) == form
    assert set(regular.values()) == set(FORMS)


TEXTS = st.text(st.sampled_from("ab10 .,'-/?\n\ttheTWOn:" + PUNCTUATION), max_size=20)


@given(TEXTS | st.text(max_size=20))
def test_normalising_twice_changes_nothing_and_leaves_no_punctuation(text: str) -> None:
    once = normalize_answer(text)
    assert normalize_answer(once) == once
    assert not set(once) & set(PUNCTUATION + "\n\t")
    assert not {"a", "an", "the", "two"} & set(once.split())


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_leave_one_out_is_the_mean_over_all_subsets(humans: list[str]) -> None:
    for answer in "abcd":
        subsets = itertools.combinations(range(len(humans)), len(humans) - 1)
        accuracies = [min(sum(humans[i] == answer for i in subset) / 3, 1) for subset in subsets]
        expected = sum(accuracies) / len(accuracies)
        assert leave_one_out(humans.count(answer), len(humans)) == pytest.approx(expected, abs=1e-12)


def test_the_official_scores_of_ten_humans_are_those_of_mcan() -> None:
    scores = [leave_one_out(matches, 10) for matches in range(11)]
    assert scores == pytest.approx([0, 0.3, 0.6, 0.9] + [1] * 7, abs=1e-12)
    assert [capped(matches, 10) for matches in range(11)] == pytest.approx([0, 1 / 3, 2 / 3] + [1] * 8)
    assert [any_match(matches, 10) for matches in range(3)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("answer", "humans", "expected"),
    [
        ("cat", ["cat"] * 10, 1.0),
        ("A cat.", ["cat"] * 10, 1.0),
        ("cat", ["cat"] + ["dog"] * 9, 0.3),
        ("dog", ["cat"] + ["dog"] * 9, 1.0),
        ("cow", ["cat"] + ["dog"] * 9, 0.0),
        # Humans that agree are not touched, so that no normalised answer is right ...
        ("t-shirt", ["t-shirt"] * 10, 0.0),
        # ... and if one differs, they lose their punctuation,
        ("t-shirt", ["t-shirt"] * 9 + ["shirt"], 1.0),
        # but neither number words, nor articles, nor capitals.
        ("two", ["two"] * 9 + ["2"], 0.3),
        ("a dog", ["a dog"] * 2 + ["dog"] * 2 + ["cat"] * 6, 0.6),
        ("usa", ["USA"] * 5 + ["u.s.a."] * 3 + ["usa"] * 2, 1.0),
    ],
)
def test_the_official_accuracy_by_hand(answer: str, humans: list[str], expected: float) -> None:
    assert answer_accuracy(answer, humans) == pytest.approx(expected, abs=1e-12)


def test_the_accuracy_of_the_paper_by_hand() -> None:
    humans = ["cat"] * 2 + ["dog"] * 8
    assert answer_accuracy("cat", humans, capped) == pytest.approx(2 / 3)
    assert answer_accuracy("dog", humans, capped) == 1


def test_what_humans_are_compared_as() -> None:
    assert normalized(["None", "a T-shirt"]) == ["0", "t shirt"]
    assert evaluated(["None", "a T-shirt"]) == ["None", "a T shirt"]


def test_no_humans_are_refused() -> None:
    with pytest.raises(ValueError, match="no human answers: expected at least one"):
        answer_accuracy("cat", [])


def test_types_of_answers() -> None:
    answers = {"yes": 0, "no": 0, "0": 1, "12": 1, "3.5": 1, "red": 2, "yes and no": 2, "2 dogs": 2, "": 2, ".": 2}
    assert {answer: ANSWER_TYPES.index(answer_type(answer)) for answer in answers} == answers
