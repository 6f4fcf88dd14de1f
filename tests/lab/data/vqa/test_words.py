from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contextual_dropout_lab.data.vqa import WordVocabulary, build_words, tokenize, vqa_v2_subset

QUESTIONS = {
    "What color is the cat?": ["what", "color", "is", "the", "cat"],
    "What's on the T-shirt?": ["whats", "on", "the", "t", "shirt"],
    "Yes/no: is it (really) 10:30?": ["yes", "no", "is", "it", "really", "1030"],
    'The "big" one, #5!': ["the", "big", "one", "5"],
    "?!": [],
    "": [],
}


@pytest.mark.parametrize(("question", "words"), QUESTIONS.items())
def test_words_by_hand(question: str, words: list[str]) -> None:
    assert tokenize(question) == words


def test_numbers_are_given_in_order_of_first_use() -> None:
    vocabulary = build_words(["Is it red?", "It is blue"])
    assert vocabulary.words == ("is", "it", "red", "blue")
    assert (len(vocabulary), vocabulary.index["is"]) == (6, 2)


def test_questions_are_padded_cut_and_never_empty() -> None:
    vocabulary = WordVocabulary(("a", "b"))
    encoded = vocabulary.encode(["a b c", "", "b " * 20])
    assert encoded.dtype == torch.int64
    assert encoded.tolist() == [[2, 3, 1] + [0] * 11, [1] + [0] * 13, [3] * 14]
    assert vocabulary.encode([]).shape == (0, 14)
    with pytest.raises(ValueError, match="length is 0: expected at least 1"):
        vocabulary.encode(["a"], length=0)


@given(st.lists(st.text(max_size=30), max_size=4))
def test_known_words_come_back(questions: list[str]) -> None:
    vocabulary = build_words(questions)
    names = ("", "", *vocabulary.words)
    for question, row in zip(questions, vocabulary.encode(questions).tolist(), strict=True):
        assert [names[number] for number in row if number > 1] == tokenize(question)[:14]


def test_real_questions(real: Path) -> None:
    if not (real / "vqa-v2-subset").is_dir():
        pytest.skip("no vqa-v2-subset here")
    texts = vqa_v2_subset("test", real).texts
    encoded = build_words(texts).encode(texts)
    assert encoded.shape == (2_962, 14)
    assert (encoded[:, 0] > 1).all()
