"""What the documentation shows is so: its code runs, its commands parse, its figures are the measured ones."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main

import contextual_dropout as cd
from contextual_dropout.training.estimators import names
from contextual_dropout_lab.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE = [(page, code) for page, text in TEXTS.items() for kind, code in BLOCK.findall(text) if kind == "python"]
(QUICKSTART,) = {code for page, code in CODE if page in ("README.md", "docs/index.md")}  # the same in both


def run(page: str, code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": page}
    torch.manual_seed(0)
    exec(compile(code, page, "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize(("page", "code"), [(page, code) for page, code in CODE if code != QUICKSTART])
def test_block_runs(page: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, code)


def test_there_are_blocks() -> None:
    assert {"README.md", "docs/index.md", "docs/converting.md", "docs/extending.md"} <= {page for page, _ in CODE}


def test_the_quickstart_has_ten_lines() -> None:
    _, _, quickstart = QUICKSTART.partition("nn.Linear(64, 3))\n\n")  # after the data and the network
    assert len(quickstart.splitlines()) == 10


def test_the_quickstart_finds_context() -> None:
    """What the record says, give or take 6 points: rounding differs between machines, and masks between runs.

    Of the uncertain there are some 90, of which half more or less are right: there 6 points are one standard deviation.
    """
    recorded = json.loads((ROOT / "benchmarks/results/opening.json").read_text(encoding="utf-8"))["example"]
    names = run("README.md", QUICKSTART)
    model, prediction, x, y = names["model"], names["prediction"], names["x"][600:], names["y"][600:]
    correct, certain = prediction.label == y, prediction.certain(0.05)
    assert len(names["handed_over"]) == int((~certain).sum())
    frozen = cd.predict(cd.freeze_context(model, x), x, samples=20, seed=0)
    measured = {
        "right": correct,
        "certain": certain,
        "right_of_certain": correct[certain],
        "right_of_others": correct[~certain],
        "frozen": frozen.label == y,
    }
    scores = {name: 100 * each.float().mean().item() for name, each in measured.items()}
    for name, score in scores.items():
        assert score == pytest.approx(recorded[name], abs=24 if name == "right_of_others" else 6), (scores, recorded)
    spread = [keep.std(0).mean() for keep in cd.keep_probabilities(model, x).values()]  # over samples
    assert min(spread) > 0.1


def test_the_recipe_for_a_threshold_keeps_its_promise_where_p_values_tie() -> None:
    """Of a hundred that tie half are wrong: two of them would still be within 2%, but nobody can answer two of them."""
    (code,) = (code for page, code in CODE if page == "docs/predicting.md" and "risk_coverage_curve" in code)
    _, _, recipe = code.partition("# Answer as many")
    p_value, correct = torch.tensor([0.001] * 100 + [0.5] * 100), torch.arange(200) < 150
    names = {"torch": torch, "cd": cd, "p_value": p_value, "correct": correct}
    exec("# Answer as many" + recipe.partition("# Or:")[0], names)
    assert names["threshold"] == p_value[0]


def commands(program: str) -> Iterator[tuple[str, str]]:
    """The calls of a program on every page: lines of blocks, and code within lines."""
    for page, text in TEXTS.items():
        lines = [line for kind, block in BLOCK.findall(text) if kind != "python" for line in block.splitlines()]
        for line in lines + re.findall(r"`([^`\n]+)`", BLOCK.sub("", text)):
            called = line.partition("  #")[0].strip().removeprefix("$ ")
            if called.startswith(f"{program} ") and "…" not in called:
                yield page, called


@pytest.mark.parametrize(("page", "command"), [*commands("contextual-dropout")])
def test_command_exists_with_these_options(page: str, command: str) -> None:
    _, name, *arguments = shlex.split(command)
    group = typer.main.get_command(app)
    assert name in group.commands, f"{page}: contextual-dropout has no command {name}"  # type: ignore[attr-defined]
    group.commands[name].make_context(name, arguments)  # type: ignore[attr-defined]  # raises UsageError


@pytest.mark.parametrize(("page", "command"), [*commands("make")])
def test_target_exists(page: str, command: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    words = [word for word in shlex.split(command)[1:] if "=" not in word]
    assert set(words) <= set(targets), page


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)[)#]", TEXTS["README.md"] + TEXTS["CONTRIBUTING.md"])
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_is_short() -> None:
    text = TEXTS["README.md"]
    assert len(text.splitlines()) <= 90
    assert text.count("![") == 1
    assert len([*rows("README.md")]) <= 2 + 6  # head and rule


def rows(page: str) -> Iterator[list[str]]:
    """The cells of every table row."""
    for line in TEXTS[page].splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("| ").split(" |")]


def test_every_estimator_is_in_the_table() -> None:
    shown = {name for row in rows("docs/estimators.md") for name in re.findall(r"`([a-z-]+)`", row[0])}
    assert shown == set(names()) - {"auto"}
