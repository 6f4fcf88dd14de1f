"""The paper's scores are as printed, and in the words of the configurations."""

from __future__ import annotations

import pytest

from contextual_dropout_lab.report import paper
from contextual_dropout_lab.report.paper import PaperScore
from contextual_dropout_lab.runs.config import load_experiment


def test_table_1() -> None:
    row = paper.RESULTS["noisy"]["contextual-bernoulli"]
    assert row["accuracy"] == PaperScore(87.43, 0.39)
    assert row["pavpu-0.05"] == PaperScore(87.81, 0.23)
    assert row["double_softmax_log_likelihood"] == PaperScore(-1.41, 0.01)


def test_methods_and_settings_are_those_of_the_configuration() -> None:
    experiment = load_experiment("mnist")
    assert set(paper.RESULTS) == set(experiment.settings)
    tables = (*paper.RESULTS.values(), paper.CLEAN_TO_NOISY, paper.PARAMETERS)
    assert all(set(table) <= set(experiment.methods) for table in tables)


def test_gating_has_no_pavpu() -> None:
    assert not any(key.startswith("pavpu") for key in paper.RESULTS["noisy"]["gating"])


def test_contextual_log_likelihoods_are_beyond_the_convention() -> None:
    assert pytest.approx(-1.4612, abs=5e-5) == paper.LARGEST_LOG_LIKELIHOOD
    for setting in paper.RESULTS.values():
        for method, row in setting.items():
            beyond = row["double_softmax_log_likelihood"].value > paper.LARGEST_LOG_LIKELIHOOD
            assert beyond == method.startswith("contextual")


def test_tables_of_cifar_and_imagenet() -> None:
    assert paper.CIFAR10["noisy"]["contextual-gaussian"]["pavpu-0.01"] == PaperScore(82.38, 0.41)
    assert paper.CIFAR10["noisy"]["concrete"]["double_softmax_log_likelihood"] == PaperScore(-2.0, decimals=1)
    assert paper.CIFAR100["original"]["contextual-bernoulli"]["double_softmax_log_likelihood"] == PaperScore(
        -3.56, 0.02
    )
    assert paper.IMAGENET["scratch"]["contextual-gaussian"]["accuracy"] == PaperScore(70.29, 0.09)
    assert "pavpu-0.05" not in paper.IMAGENET["finetuned"]["plain"]


def test_table_of_questions() -> None:
    assert paper.VQA["noisy"]["contextual-gaussian"]["pavpu-0.05"] == PaperScore(68.64, 0.04)
    assert paper.VQA["original"]["concrete"]["accuracy"] == PaperScore(66.82)
    assert not paper.comparable({"config": load_experiment("vqa").run("noisy", "concrete", 0, "paper").to_dict()})


def test_small_data_sets_stand_for_the_papers() -> None:
    assert paper.reported_for("tiny-imagenet-20", "finetuned") == paper.IMAGENET["finetuned"]
    assert paper.reported_for("easy-vqa", "original") == paper.VQA["original"]
    assert paper.reported_for("cifar10", "noisy") == paper.CIFAR10["noisy"]
    assert not paper.reported_for("digits", "noisy")
    assert not paper.reported_for("mnist", "other")


@pytest.mark.parametrize("data", paper.REPORTED)
def test_the_settings_and_methods_of_every_data_set_are_those_that_are_run(data: str) -> None:
    experiment = {"vqa-v2": "vqa"}.get(data, data)
    runs = {(config.setting, config.method) for config in load_experiment(experiment).runs("paper")}
    assert {(setting, method) for setting, rows in paper.REPORTED[data].items() for method in rows} <= runs


@pytest.mark.parametrize(
    ("experiment", "setting", "method", "train"),
    [
        ("mnist", "noisy", "gating", 60_000),
        ("cifar10", "original", "concrete", 50_000),
        ("cifar100", "noisy", "mc-gaussian", 50_000),
        ("imagenet", "finetuned", "plain", 1_281_167),
        ("imagenet", "scratch", "contextual-gaussian", 1_281_167),
    ],
)
def test_only_runs_of_the_papers_size_compare_with_it(experiment: str, setting: str, method: str, train: int) -> None:
    def record(preset: str, train: int, **changes: object) -> dict[str, object]:
        config = load_experiment(experiment).run(setting, method, 0, preset, **changes)
        return {"config": config.to_dict(), "data": {"train": train}}

    assert paper.comparable(record("paper", train))
    assert not paper.comparable(record("quick", train))
    assert not paper.comparable(record("paper", train - 1))
    for changes in ({"epochs": 5}, {"split": "validation"}, {"test_examples": 100}, {"network": "vit"}):
        assert not paper.comparable(record("paper", train, **changes))
