from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextual_dropout_lab.data import DataError
from contextual_dropout_lab.data.formats import json_files
from contextual_dropout_lab.data.formats.json_files import parse_json
from contextual_dropout_lab.data.vqa import (
    Questions,
    mcan_answers,
    normalize_answer,
    read_questions,
    vqa_v2,
    vqa_v2_subset,
)
from tests.lab.data.vqa.files import annotation, question, write_official

Change = Callable[[dict[str, Any]], Any]


def without(key: str) -> Change:
    return lambda record: {name: value for name, value in record.items() if name != key}


def changed(key: str, value: Any) -> Change:
    return lambda record: record | {key: value}


def test_questions_and_annotations_are_matched_by_id(tmp_path: Path) -> None:
    answers = ("two",) * 6 + ("2",) * 4
    paths = write_official(
        tmp_path,
        [question(5, 1, "How many?"), question(3, 2, "What?")],
        [annotation(3, 2), annotation(5, 1, answers) | {"answer_type": "number"}],
    )
    data = read_questions(*paths)
    assert [record.question_id for record in data.records] == [5, 3]
    first = data.records[0]
    assert (first.image_id, first.text, first.answers, first.answer) == (1, "How many?", answers, "two")
    assert (first.answer_type, first.question_type) == ("number", "what is")
    assert (len(data), data.skipped, data.texts) == (2, {}, ["How many?", "What?"])
    assert data.answer_types.tolist() == [1, 2]
    assert data.answers[1] == ("cat",) * 10
    assert data.sha256 == read_questions(*paths).sha256
    assert data.sha256 != Questions(data.records[:1], {}).sha256


BAD_QUESTIONS: list[tuple[Change, str]] = [
    (lambda _: 7, "is 7: expected a map with question_id"),
    (lambda _: None, "is None: expected a map"),
    (without("question_id"), "has no question_id"),
    (without("image_id"), "has no image_id"),
    (without("question"), "has no question: expected one"),
    (changed("question_id", "5"), "has question_id = '5': expected a whole number"),
    (changed("question_id", True), "has question_id = True"),
    (changed("question_id", -1), "has question_id = -1"),
    (changed("image_id", 1.5), "has image_id = 1.5"),
    (changed("image_id", 2**70), "has image_id = 11805916"),
    (changed("question", None), "has question = None: expected a string"),
    (changed("question", " \n"), "has a blank question"),
]
BAD_ANNOTATIONS: list[tuple[Change, str]] = [
    (lambda _: [1], r"is \[1\]: expected a map"),
    (without("answers"), "has no list of answers: expected those of 10 people"),
    (changed("answers", []), "has 0 answers: expected those of 10"),
    (changed("answers", {"answer": "cat"}), "has no list of answers"),
    (changed("answers", [{"answer": "cat"}] * 9), "has 9 answers"),
    (changed("answers", ["cat"] * 10), "is 'cat': expected a map with answer"),
    (changed("answers", [{}] * 10), "has no answer: expected one"),
    (changed("answers", [{"answer": 3}] * 10), "has answer = 3: expected a string"),
    (without("multiple_choice_answer"), "has no multiple_choice_answer"),
    (changed("answer_type", "maybe"), "has answer_type = 'maybe': expected one of yes/no, number, other"),
    (without("question_type"), "has no question_type"),
    (changed("image_id", 10), "is on image 10: expected 9, that of its question"),
]


@pytest.mark.parametrize(("change", "message"), BAD_QUESTIONS)
def test_a_malformed_question_is_named_or_skipped(tmp_path: Path, change: Change, message: str) -> None:
    paths = write_official(tmp_path, [question(1), change(question(2))], [annotation(1), annotation(2)])
    with pytest.raises(DataError, match=rf"questions\.json: question 1 {message}.*on_bad='skip'"):
        read_questions(*paths)
    data = read_questions(*paths, on_bad="skip")
    assert [record.question_id for record in data.records] == [1]
    assert data.skipped == {"malformed question": 1, "no question": 1}


@pytest.mark.parametrize(("change", "message"), BAD_ANNOTATIONS)
def test_a_malformed_annotation_is_named_or_skipped(tmp_path: Path, change: Change, message: str) -> None:
    paths = write_official(tmp_path, [question(1), question(2)], [annotation(1), change(annotation(2))])
    with pytest.raises(DataError, match=rf"annotations\.json: .*{message}.*on_bad='skip'"):
        read_questions(*paths)
    data = read_questions(*paths, on_bad="skip")
    assert [record.question_id for record in data.records] == [1]
    assert data.skipped.pop("malformed annotation") == 1
    assert data.skipped in ({}, {"no annotation": 1})


def test_all_other_reasons_are_counted(tmp_path: Path) -> None:
    paths = write_official(
        tmp_path,
        [question(1), question(1), question(2), question(3, image=8), question(4)],
        [annotation(1), annotation(1), annotation(3, 8), annotation(4, answers=("dog",) * 10), annotation(5)],
    )
    data = read_questions(*paths, images={9}, answers={"cat"}, on_bad="skip")
    assert [record.question_id for record in data.records] == [1]
    assert data.skipped == {
        "repeated question": 1,
        "repeated annotation": 1,
        "no question": 1,
        "no annotation": 1,
        "no image": 1,
        "no known answer": 1,
    }


@pytest.mark.parametrize(
    ("questions", "annotations", "message"),
    [
        ([1, 1], [1], "question 1 has the question_id 1 of another one"),
        ([1], [1, 1], "annotation 1 has the question_id 1 of another one"),
        ([1, 2], [1], "question 2 has no annotation"),
        ([1], [1, 2], "there is no question 2 to its annotation"),
    ],
)
def test_records_that_do_not_match_are_named(
    tmp_path: Path, questions: list[int], annotations: list[int], message: str
) -> None:
    paths = write_official(tmp_path, [question(i) for i in questions], [annotation(i) for i in annotations])
    with pytest.raises(DataError, match=message):
        read_questions(*paths)


def test_images_without_features_and_unknown_answers_are_named(tmp_path: Path) -> None:
    paths = write_official(tmp_path, [question(1)], [annotation(1, answers=("A cat.",) + ("cow",) * 9)])
    with pytest.raises(DataError, match="question 1 is on image 9, which has no features"):
        read_questions(*paths, images={8})
    with pytest.raises(DataError, match="question 1 has no answer of the vocabulary"):
        read_questions(*paths, answers={"dog"})
    assert len(read_questions(*paths, images={9}, answers={"cat"})) == 1  # as it is normalised


@pytest.mark.parametrize("content", [[], {}, {"questions": {}}, 3, None])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: Any) -> None:
    paths = write_official(tmp_path, content if content != [] else {"annotations": []}, [])
    for on_bad in ("raise", "skip"):
        with pytest.raises(DataError, match=r"questions\.json has no list 'questions'"):
            read_questions(*paths, on_bad=on_bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\xfd", b"[" * 100_000, b"1" * 10_000, b"<html>"])
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    questions, annotations = write_official(tmp_path, [], [])
    annotations.write_bytes(content)
    with pytest.raises(DataError, match=r"annotations\.json (cannot be read as JSON|has no list)"):
        read_questions(questions, annotations, on_bad="skip")


def test_values_are_counted_before_they_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "MAX_VALUES", 1000)
    assert parse_json(b"[" + b"[]," * 400 + b"[]]", "some.json") == [[]] * 401
    with pytest.raises(DataError, match=r"some\.json has about 1002 values: expected at most 1000"):
        parse_json(b"[" + b"[]," * 500 + b"{}]", "some.json")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_data_errors_only(content: bytes) -> None:
    try:
        parse_json(content, "some.json")
    except DataError:
        return


RECORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(annotation(1))), inner, max_size=6)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(st.lists(RECORDS, max_size=4), st.lists(RECORDS, max_size=4))
def test_any_records_are_skipped_and_counted(questions: list[Any], annotations: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = read_questions(
            *write_official(Path(folder), [question(1), *questions], [annotation(1), *annotations]), on_bad="skip"
        )
    assert data.records[0].question_id == 1


def test_truncated_files_and_another_on_bad_are_refused(tmp_path: Path) -> None:
    questions, annotations = write_official(tmp_path, [question(1)], [annotation(1)])
    packed = tmp_path / "questions.json.gz"
    packed.write_bytes(gzip.compress(questions.read_bytes())[:-9])
    with pytest.raises(DataError, match="truncated"):
        read_questions(packed, annotations)
    with pytest.raises(ValueError, match="on_bad is 'ignore': expected 'raise' or 'skip'"):
        read_questions(questions, annotations, on_bad="ignore")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"missing\.json is not a file"):
        read_questions(questions, tmp_path / "missing.json")


def test_the_official_files_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "vqa-v2"
    folder.mkdir()
    for path, name in zip(
        write_official(tmp_path, [question(1)], [annotation(1)]),
        ("v2_OpenEnded_mscoco_val2014_questions.json", "v2_mscoco_val2014_annotations.json"),
        strict=True,
    ):
        (folder / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert len(vqa_v2("val", tmp_path)) == len(vqa_v2("val", folder)) == 1
    with pytest.raises(DataError, match=r"(?s)vqa-v2 is in none of these places:.*none of the files.*train2014"):
        vqa_v2("train", tmp_path)
    with pytest.raises(DataError, match="vqa-v2 has no split 'test': expected one of train, val"):
        vqa_v2("test", tmp_path)
    with pytest.raises(DataError, match="vqa-v2-subset has no split 'val': expected one of train, valid, test"):
        vqa_v2_subset("val", tmp_path)


@pytest.mark.parametrize(
    ("split", "size", "types", "known"),
    [
        ("train", 48_061, [16_033, 16_086, 15_942], 45_002),
        ("valid", 8_977, [2_947, 2_948, 3_082], 8_364),
        ("test", 2_962, [1_020, 966, 976], 2_781),
    ],
)
def test_the_stored_subset(real: Path, split: str, size: int, types: list[int], known: int) -> None:
    if not (real / "vqa-v2-subset").is_dir():
        pytest.skip("no vqa-v2-subset here")
    data, vocabulary = vqa_v2_subset(split, real), mcan_answers(real)
    assert (len(data), data.skipped) == (size, {})
    assert data.answer_types.bincount().tolist() == types
    assert sum(record.answer in vocabulary for record in data.records) == known
    if split == "test":
        paths = (real / "vqa-v2-subset" / f"vqa_{part}_test.json.gz" for part in ("questions", "annotations"))
        kept = read_questions(*paths, answers=vocabulary, on_bad="skip")
        left = [r for r in data.records if not any(normalize_answer(answer) in vocabulary for answer in r.answers)]
        assert kept.skipped == {"no known answer": len(left)} == {"no known answer": 2_962 - len(kept)}


def test_the_error_shortens_long_values(tmp_path: Path) -> None:
    paths = write_official(tmp_path, [json.loads(json.dumps(question(1) | {"question_id": "x" * 500}))], [])
    with pytest.raises(DataError, match=r"x\.\.\.: expected"):
        read_questions(*paths)
