"""Tables show the exact means, deviations and differences of the records."""

from __future__ import annotations

import pytest

from contextual_dropout_lab.report import all_tables, summarise, to_markdown, to_rich
from contextual_dropout_lab.report.summary import Summary
from contextual_dropout_lab.report.table import MISSING, Table
from contextual_dropout_lab.store.results import Results
from tests.lab.report.records import answered, ensemble, record, write, write_ensemble


def row(table: Table, *names: str) -> dict[str, str]:
    """The row that begins with the names; of columns of one name the first is kept."""
    (found,) = (each for each in table.rows if each[: len(names)] == names)
    return dict(reversed(list(zip(table.columns, found, strict=True))))


def cells(table: Table, *names: str) -> tuple[str, ...]:
    (found,) = (each for each in table.rows if each[: len(names)] == names)
    return found[len(names) :]


@pytest.fixture
def summary(results: Results) -> Summary:
    """Two seeds of one method and one of two others, with round means."""
    write(
        results,
        record("noisy", "contextual-bernoulli", 0, 87.0),
        record("noisy", "contextual-bernoulli", 1, 88.0),
        record("noisy", "mc-bernoulli", 0, 86.0),
        record("noisy", "gating", 0, 85.0, deterministic=True),
        record("original", "contextual-bernoulli", 0, 99.0),
    )
    write_ensemble(results, "noisy", "mc-bernoulli", ensemble(86.0))
    write_ensemble(results, "noisy", "gating", ensemble(85.0, deterministic=True))
    return summarise(results, "mnist")


def test_noisy_mnist(summary: Summary) -> None:
    assert cells(all_tables(summary)["noisy-mnist"], "Contextual Bernoulli") == (
        *("2", "87.43 ± 0.39", "87.50 ± 0.71", "+0.07"),
        *("87.81 ± 0.23", "87.75 ± 0.71", "-0.06"),
        *("-1.41 ± 0.01", "-1.6693 ± 0.0118", "-0.26"),
        "-0.4167 ± 0.0236",
    )


def test_both_estimators_stand_beside_the_papers_bernoulli_dropout(results: Results) -> None:
    """The paper's scores are of ARM; the names of our rows tell which is which."""
    straight = {"objective": {"estimator": "straight-through"}}
    for method, accuracy, options in (("contextual-bernoulli", 88.5, straight), ("contextual-bernoulli-arm", 87.5, {})):
        write(results, *(record("noisy", method, seed, accuracy + seed / 50, **options) for seed in (0, 1)))
    summary = summarise(results, "mnist")
    tables = all_tables(summary)
    for name, difference in (
        ("Contextual Bernoulli (straight-through)", "+1.08"),
        ("Contextual Bernoulli (ARM)", "+0.08"),
    ):
        found = cells(tables["noisy-mnist"], name)
        assert (found[1], found[3]) == ("87.43 ± 0.39", difference)
        assert cells(tables["model-sizes"], name)[0] == "311K"
    assert row(tables["differences"], "noisy", "Contextual Bernoulli (straight-through)", "Accuracy")
    assert any("both are held against it" in note for note in tables["noisy-mnist"].notes)


@pytest.fixture
def small(results: Results) -> Summary:
    """CIFAR-10 with another network than the paper's; ours has Gaussian dropout ahead of MC dropout."""
    for method, accuracy in (("mc-bernoulli", 50.0), ("mc-gaussian", 52.0), ("contextual-gaussian", 51.0)):
        write(results, *(record("noisy", method, seed, accuracy + seed, data="cifar10") for seed in (0, 1)))
    write(results, record("noisy", "no-dropout", 0, 60.0, deterministic=True, data="cifar10"))
    return summarise(results, "mnist")


def test_order_of_a_smaller_experiment(small: Summary) -> None:
    """Places are among the methods that both have: the paper lacks no-dropout, and concrete was not run."""
    tables = all_tables(small)
    assert "noisy-mnist" not in tables
    table = tables["order-noisy"]
    assert table.columns[:6] == ("Method", "Seeds", "Accuracy: paper", "place", "ours", "place")
    assert [each[0] for each in table.rows] == ["No dropout", "MC dropout", "MC Gaussian", "Contextual Gaussian"]
    assert cells(table, "No dropout")[:5] == ("1", MISSING, MISSING, "60.00", MISSING)
    assert cells(table, "MC dropout")[:5] == ("2", "79.51", "2", "50.50 ± 0.71", "3")
    assert cells(table, "MC Gaussian")[:9] == (
        *("2", "79.33", "3", "52.50 ± 0.71", "1"),
        *("81.24", "2", "52.75 ± 0.71", "1"),
    )
    assert cells(table, "Contextual Gaussian")[9:12] == ("-1.51", "1", "-2.2693 ± 0.0118")
    assert not any("perfect classifier" in note for note in table.notes)


def test_places_are_of_the_seeds_that_all_have(results: Results, small: Summary) -> None:
    """Another seed of one method, however good, does not change its place."""
    write(results, record("noisy", "mc-bernoulli", 2, 90.0, data="cifar10"))
    table = all_tables(summarise(results, "mnist"))["order-noisy"]
    assert cells(table, "MC dropout")[:5] == ("3", "79.51", "2", "63.67 ± 22.81", "3")


def test_log_likelihoods_beyond_the_convention_are_named(results: Results) -> None:
    """The paper has such scores of CIFAR-10 on original data, not on noisy data."""
    for method in ("concrete", "contextual-gaussian"):
        write(results, record("original", method, 0, 50.0, data="cifar10"))
    notes = all_tables(summarise(results, "mnist"))["order-original"].notes
    assert any("a perfect classifier has -1.4612" in note for note in notes)


def test_no_order_of_a_single_method(results: Results) -> None:
    write(results, record("noisy", "mc-bernoulli", 0, 50.0, data="cifar10"))
    assert not any(name.startswith("order") for name in all_tables(summarise(results, "mnist")))


def test_runs_of_the_papers_size_stand_beside_its_figures(results: Results) -> None:
    network = {"network": "wide_resnet", "network_options": {"depth": 28, "width": 10}}
    run = record("original", "concrete", 0, 94.0, data="cifar10", **network)
    run["data"]["train"] = 50_000
    write(results, run)
    tables = all_tables(summarise(results, "mnist"))
    assert "order-original" not in tables
    assert cells(tables["paper-original"], "Concrete")[:4] == ("1", "94.60", "94.00", "-0.60")


def test_deterministic_method_has_no_pavpu(summary: Summary) -> None:
    found = cells(all_tables(summary)["noisy-mnist"], "Gating")
    assert found[:7] == ("1", "86.20", "85.00", "-1.20", MISSING, MISSING, MISSING)


def test_missing_methods_keep_the_paper_only(summary: Summary) -> None:
    found = cells(all_tables(summary)["noisy-mnist"], "Concrete")
    assert found == (MISSING, "86.52", MISSING, MISSING, "86.77", *[MISSING] * 2, "-1.68", *[MISSING] * 3)


def test_complete_results(summary: Summary) -> None:
    tables = all_tables(summary)
    assert cells(tables["complete-original"], "Contextual Bernoulli")[4:7] == ("98.74 ± 0.17", "98.50", "-0.24")
    assert cells(tables["complete-noisy"], "MC dropout")[-3:] == ("86.10", "86.50", "+0.40")


def test_original_log_likelihood(summary: Summary) -> None:
    found = cells(all_tables(summary)["original-log-likelihood"], "Contextual Bernoulli")
    assert found == ("1", "-1.4537 ± 0.0005", "-1.4777", "-0.0240", "-0.0333")


def test_clean_to_noisy(summary: Summary) -> None:
    found = cells(all_tables(summary)["clean-to-noisy"], "Contextual Bernoulli")
    assert found[:7] == ("1", "78.08", "79.00", "+0.92", "78.49", "79.25", "+0.76")


def test_calibration(summary: Summary) -> None:
    table = all_tables(summary)["calibration-noisy"]
    assert cells(table, "Gating") == ("1", "0.2500", "1.50", "0.0300", MISSING)


def test_detection(summary: Summary) -> None:
    table = all_tables(summary)["detection-noisy"]
    found = row(table, "kmnist", "Contextual Bernoulli")
    assert (found["AUROC, entropy"], found["FPR95, p-value"]) == ("70.50 ± 0.71", "60.00 ± 0.00")
    assert row(table, "fashion-mnist", "Gating")["AUROC, mutual information"] == MISSING


def test_other_experiments_are_not_held_against_the_paper(results: Results) -> None:
    short = record("noisy", "concrete", 0, 86.0)
    short["config"]["epochs"] = 5
    write(results, short)
    tables = all_tables(summarise(results, "mnist"))
    assert not {"noisy-mnist", "differences", "complete-noisy", "model-sizes"} & set(tables)
    assert cells(tables["figures-noisy"], "Concrete")[1] == "86.00"
    assert "mnist" in tables["figures-noisy"].title


def test_model_sizes(summary: Summary) -> None:
    table = all_tables(summary)["model-sizes"]
    assert cells(table, "Contextual Bernoulli") == ("311K", "410,219", "266,610", "143,606", "3")
    assert cells(table, "Bayes by Backprop") == ("534K", *[MISSING] * 4)
    assert "311,465" in table.notes[0]


def test_cost(summary: Summary) -> None:
    found = cells(all_tables(summary)["cost"], "noisy", "Contextual Bernoulli")
    assert found == ("2", "6.000 ± 0.000", "3.00", "30.0", "0.3000 ± 0.0000", "1.00")
    assert cells(all_tables(summary)["cost"], "original", "Contextual Bernoulli")[2] == MISSING


def test_context(summary: Summary) -> None:
    tables = all_tables(summary)
    spread = cells(tables["context-spread"], "noisy", "Contextual Bernoulli", "hidden 1")
    assert spread == (
        *("0.8900 ± 0.0000", "0.0205 ± 0.0007", "0.0020 ± 0.0000"),
        *("0.0300 ± 0.0000", "0.9000 ± 0.0000"),
    )
    value = cells(tables["context-value"], "noisy", "Contextual Bernoulli")
    assert value[1:4] == ("87.50 ± 0.71", "87.40 ± 0.71", "+0.10 ± 0.00")
    assert value[-1] == "40 ± 1 of 10,000"
    released = cells(tables["context-value"], "noisy", "Contextual Bernoulli, released code")
    assert released[1:4] == ("87.33", "87.23", "+0.10")


def test_released_code_stands_beside_the_papers_experiment_only(results: Results) -> None:
    write(results, answered("noisy", "contextual-bernoulli", 0, 80.0))
    tables = all_tables(summarise(results, "mnist"))
    for name in ("context-spread", "context-value"):
        assert "released code" not in to_markdown(tables[name])
    assert tables["context-spread"].rows[21][2] == "22: decoder.21.feed_forward.dropout.dropout"


def test_accuracy_by_answer_type(results: Results) -> None:
    write(results, *(answered("noisy", "mc-bernoulli", seed, 80.0 + seed) for seed in (0, 1)))
    table = all_tables(summarise(results, "mnist"))["groups-noisy"]
    assert table.columns == ("Method", "Seeds", "All", "yes/no", "other")
    assert cells(table, "MC dropout") == ("2", "80.50 ± 0.71", "85.50 ± 0.71", "70.50 ± 0.71")


def test_there_are_no_answer_types_of_images(summary: Summary) -> None:
    assert not [name for name in all_tables(summary) if name.startswith("groups")]


def test_ensembles(summary: Summary) -> None:
    table = all_tables(summary)["ensembles"]
    assert cells(table, "noisy", "MC dropout", "3") == ("1", "86.75", "86.00", "87.50", "86.00", "-0.3700", "1.20")
    assert cells(table, "noisy", "Gating", "1")[1:5] == ("85.25 ± 0.20", MISSING, MISSING, MISSING)


def test_differences_lists_only_what_is_far(results: Results) -> None:
    write(results, *(record("noisy", "mc-bernoulli", seed, value) for seed, value in enumerate((86.3, 86.4))))
    table = all_tables(summarise(results, "mnist"))["differences"]
    listed = {cells[2] for cells in table.rows}
    assert "Accuracy" not in listed
    assert "PAvPU(.05)" in listed
    assert row(table, "noisy", "MC dropout", "PAvPU(.05)")["Difference"] == "+0.97"


def test_one_seed_is_not_judged(results: Results) -> None:
    write(results, record("noisy", "mc-bernoulli", 0, 50.0))
    table = all_tables(summarise(results, "mnist"))["differences"]
    assert not table.rows
    assert "not judged: 5" in table.notes[-1]
    assert table.empty.startswith("Nothing can be judged yet")


def test_runs_with_changed_values_are_beside_the_papers_tables(results: Results) -> None:
    changed = record("noisy", "mc-bernoulli@0a1b2c", 0, 50.0, epochs=3)
    write(results, record("noisy", "mc-bernoulli", 0, 86.0), changed)
    tables = all_tables(summarise(results, "mnist"))
    methods = {name: [cells[0] for cells in tables[name].rows] for name in ("noisy-mnist", "figures-noisy")}
    assert "MC dropout" in methods["noisy-mnist"]
    assert "mc-bernoulli@0a1b2c" not in methods["noisy-mnist"]
    assert methods["figures-noisy"] == ["MC dropout", "mc-bernoulli@0a1b2c"]


def test_methods_that_do_not_compare_are_told(results: Results) -> None:
    write(results, record("noisy", "concrete", 0, 86.0), record("noisy", "mc-bernoulli", 0, 86.0, epochs=5))
    notes = all_tables(summarise(results, "mnist"))["protocol"].notes
    assert any(note.startswith("Not comparable") and "epochs" in note for note in notes)


def test_the_protocol_tells_of_the_network_that_there_is(results: Results, summary: Summary) -> None:
    assert all_tables(summary)["protocol"].notes[0].startswith("All noisy: network mlp, hidden [300, 100], epochs 200")
    run = answered("clean", "concrete", 0, 80.0)
    run["config"] |= {"augmentation": "crop-flip", "start_from": "mnist/plain/seed-{seed}"}
    run["skipped"] = {"test": {"no image": 1200}}
    write(results, run)
    notes = all_tables(summarise(results, "mnist"))["protocol"].notes
    clean = next(note for note in notes if note.startswith("All clean: network mcan, network_options size tiny, "))
    assert "start_from mnist/plain/seed-{seed}, augmentation crop-flip, epochs" in clean
    assert "hidden" not in clean
    assert "Left out of the test data of clean: 1,200 (no image)." in notes


def test_seeds_without_a_score_are_noted(results: Results) -> None:
    one, two = (record("noisy", "concrete", seed, 86.0) for seed in (0, 1))
    two["ood"]["kmnist"] = None
    write(results, one, two)
    table = all_tables(summarise(results, "mnist"))["detection-noisy"]
    assert row(table, "kmnist", "Concrete")["AUROC, entropy"] == "70.00 (1 seed)"


def test_unknown_methods_are_shown_under_their_names(results: Results) -> None:
    write(results, record("noisy", "my_method", 0, 86.0))
    assert cells(all_tables(summarise(results, "mnist"))["noisy-mnist"], "my_method")[2] == "86.00"


def test_every_table_can_be_rendered(complete: Results) -> None:
    for table in all_tables(summarise(complete, "mnist")).values():
        assert to_markdown(table).count("\n|") >= 2 or not table.rows
        assert to_rich(table).row_count == len(table.rows)
