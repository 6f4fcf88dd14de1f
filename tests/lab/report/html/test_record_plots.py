"""Dropout probabilities and ensembles are those of the records."""

from __future__ import annotations

from typing import Any

import pytest

from contextual_dropout_lab.report import summarise
from contextual_dropout_lab.report.html.plot_values import InteractivePlot
from contextual_dropout_lab.report.html.record_plots import all_record_plots
from contextual_dropout_lab.store.results import Results
from tests.lab.report.records import ensemble, record, write, write_ensemble


def figures(root: Results, setting: str = "noisy") -> dict[str, InteractivePlot]:
    summary = summarise(root, "mnist")
    runs = [summary.runs[setting, method] for method in summary.methods(setting)]
    return {figure.title: figure for figure in all_record_plots(runs)}


def boxes(plot: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (trace for trace in plot["data"] if trace["type"] == "box" and trace["name"] == name)
    return dict(found)


def test_boxes_of_layers_are_quantiles_averaged_over_seeds(complete: Results) -> None:
    plots = figures(complete)["Dropout probabilities by layer"].plots
    assert next(iter(plots)).startswith("Contextual")
    right = boxes(plots["Contextual Bernoulli"], "right")
    assert right["x"] == ["input", "hidden 1", "hidden 2"]
    # 0.1 + 0.05 layer + 0.001 for "right" + 0.02 quantile + 0.01 mean seed
    assert right["median"] == pytest.approx([0.121, 0.171, 0.221])
    assert right["lowerfence"] == pytest.approx([0.112, 0.162, 0.212])
    assert right["q3"] == pytest.approx([0.126, 0.176, 0.226])


def test_boxes_of_classes(complete: Results) -> None:
    plots = figures(complete)["Dropout probabilities by class"].plots
    digits = boxes(plots["hidden 1: Contextual Gaussian"], "")
    assert digits["x"] == [str(digit) for digit in range(10)]
    assert digits["median"] == pytest.approx([0.173 + 0.001 * digit for digit in range(10)])


def test_a_group_without_examples_has_no_box(results: Results) -> None:
    perfect = record("noisy", "contextual-bernoulli", 0, 100.0)
    del perfect["drop_probabilities"]["sites"]["3"]["wrong"]
    write(results, perfect)
    plot = figures(results)["Dropout probabilities by layer"].plots["Contextual Bernoulli"]
    assert boxes(plot, "wrong")["x"] == ["input", "hidden 2"]
    assert boxes(plot, "right")["x"] == ["input", "hidden 1", "hidden 2"]
    words = plot["data"][-1]["text"][1]
    assert words.startswith("<b>hidden 1</b><br>all 0.16 (0.151 to 0.169)")
    assert "wrong" not in words


def test_many_layers_are_numbered_and_named_to_who_points_at_them(results: Results) -> None:
    deep = record("noisy", "contextual-bernoulli", 0, 87.0)
    quantiles = deep["drop_probabilities"]["sites"]["0"]
    names = [f"encoder.{layer}.<attention>.dropout" for layer in range(30)]
    deep["drop_probabilities"]["sites"] = {name: {"all": quantiles["all"]} for name in names}
    write(results, deep)
    found = figures(results)
    plot = found["Dropout probabilities by layer"].plots["Contextual Bernoulli"]
    assert boxes(plot, "all")["x"] == [str(number) for number in range(1, 31)]
    assert "<b>encoder.29.&lt;attention&gt;.dropout</b>" in plot["data"][-1]["text"][29]
    assert "Dropout probabilities by class" not in found


def test_ensembles(complete: Results) -> None:
    plots = figures(complete)["Ensembles"].plots
    (line,) = (trace for trace in plots["Accuracy"]["data"] if trace["meta"] == "mc-bernoulli")
    members = summarise(complete, "mnist").runs["noisy", "mc-bernoulli"].ensemble["members"]  # type: ignore[index]
    assert line["x"] == [1, 2, 3]
    assert line["y"] == pytest.approx([members[count]["accuracy"] for count in "123"])
    assert "gating" not in {trace["meta"] for trace in plots["PAvPU(.05)"]["data"]}


def test_what_is_not_recorded_is_not_drawn(results: Results, complete: Results) -> None:
    write(results, record("noisy", "concrete", 0, 86.0))
    alone = ensemble(86.0)
    alone["members"] = {"1": alone["members"]["1"]}
    write_ensemble(results, "noisy", "concrete", alone)
    assert figures(results) == {}
    assert "Ensembles" not in figures(complete, "original")
