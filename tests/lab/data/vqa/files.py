"""Small files in the formats of the VQA data sets."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def question(identity: int, image: int = 9, text: str = "What is it?") -> dict[str, Any]:
    return {"question_id": identity, "image_id": image, "question": text}


def annotation(identity: int, image: int = 9, answers: tuple[str, ...] = ("cat",) * 10) -> dict[str, Any]:
    return {
        "question_id": identity,
        "image_id": image,
        "question_type": "what is",
        "answer_type": "other",
        "multiple_choice_answer": answers[0],
        "answers": [
            {"answer": answer, "answer_confidence": "yes", "answer_id": number}
            for number, answer in enumerate(answers, 1)
        ],
    }


def write_official(folder: Path, questions: Any, annotations: Any) -> tuple[Path, Path]:
    """A question and an annotation file, as lists of records or as anything else."""
    paths = folder / "questions.json", folder / "annotations.json"
    for path, key, records in zip(paths, ("questions", "annotations"), (questions, annotations), strict=True):
        path.write_text(json.dumps({"info": {}, key: records} if isinstance(records, list) else records))
    return paths


def picture(sides: tuple[int, int] = (8, 6), format: str = "PNG", seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (sides[1], sides[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format)
    return file.getvalue()


def pack(files: dict[str, bytes], path: Path) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    path.write_bytes(lzma.compress(buffer.getvalue()))
    return path


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
