"""``make demo``: noisy digits, five kinds of dropout, and what each says about its own certainty.

Trains the paper's kind of MLP on scikit-learn's embedded digits with Gaussian noise on the pixels, prints a table and
draws two plots: all methods side by side, and single digits with the class probabilities under sampled masks.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from contextual_dropout_lab.cli.progress import Bars
from contextual_dropout_lab.data import noisy_copies
from contextual_dropout_lab.launch.local import sweep
from contextual_dropout_lab.report import Table, summarise, to_rich
from contextual_dropout_lab.report.metric_names import ACCURACY, LOG_LIKELIHOOD, PAVPU_05
from contextual_dropout_lab.report.plots import comparison, examples, telling_examples
from contextual_dropout_lab.report.summary import Summary
from contextual_dropout_lab.report.table import of_seeds
from contextual_dropout_lab.runs.config import RunConfig, load_experiment
from contextual_dropout_lab.runs.evaluation import TEST_NOISE_SEED, noise_name
from contextual_dropout_lab.runs.run_data import images_of, load_examples
from contextual_dropout_lab.store.results import Results

SETTING = "noisy"
#: The methods whose box plots stand side by side.
SHOWN = ("mc-bernoulli", "contextual-bernoulli")


def main(folder: Path = Path("runs/demo")) -> None:
    """Train (what was trained before is not trained again), print and draw."""
    console, start = Console(), time.time()
    results = Results(folder / "records", folder / "work")
    configs = list(load_experiment("digits").runs("demo"))
    with Bars(console) as bars:
        failures = sweep(configs, results, processes=os.cpu_count() or 1, watcher=bars)
    if failures:
        raise SystemExit(f"{len(failures)} of {len(configs)} runs failed")
    summary = summarise(results, configs[0].experiment)
    console.print(to_rich(results_table(summary)))
    for name, figure in {
        "comparison": comparison(summary, SETTING),
        "examples": digits_figure(results, [config for config in configs if config.seed == 0]),
    }.items():
        figure.savefig(folder / f"{name}.png", dpi=160)
        console.print(f"plot: {folder / name}.png", highlight=False)
    console.print(f"{time.time() - start:.0f} s")
    for line in next_steps(folder):
        console.print(line, highlight=False, soft_wrap=True)


def next_steps(folder: Path) -> list[str]:
    """The commands that show more of it, with their path: outside of an activated environment they are not found."""
    command = Path(os.path.relpath(Path(sys.executable).with_name("contextual-dropout")))
    return [
        "a page of tables, plots and examples, and one to draw digits on:",
        f"  {command} report {folder} -o report",
        f"  {command} serve {folder}",
    ]


def results_table(summary: Summary) -> Table:
    """Accuracy and PAvPU in percent, log-likelihood in nats, mean and standard deviation over seeds."""
    metrics = (ACCURACY, PAVPU_05, LOG_LIKELIHOOD)
    rows = []
    for method in summary.methods(SETTING):
        scores = (of_seeds(summary.test(SETTING, method, metric), metric.decimals) for metric in metrics)
        rows.append((summary.label(SETTING, method), *scores))
    notes = (
        "mean ± sd over seeds, each of them the mean over five draws of the test noise",
        "PAvPU(.05): the share that is certain (the top class stands out at p < .05) and right, or uncertain and wrong",
    )
    return Table("Noisy digits", ("dropout", *(metric.label for metric in metrics)), tuple(rows), notes)


def digits_figure(results: Results, configs: list[RunConfig]) -> Figure:
    """Digits that tell the methods apart, from the predictions that the runs kept."""
    config = configs[0]
    data = load_examples(config)
    x = next(noisy_copies(images_of(data.test_x), config.noise_sd, 1, TEST_NOISE_SEED))
    predictions = {}
    for each in configs:
        kept = results.predictions(each)
        if each.method in SHOWN and kept is not None:
            predictions[each.method] = kept[f"{noise_name(config.noise_sd)}/0"]
    rows = telling_examples(predictions[SHOWN[-1]], data.test_y)
    side = round(x.shape[1] ** 0.5)
    return examples(x.reshape(-1, side, side), data.test_y, data.classes, predictions, rows)


if __name__ == "__main__":
    main()
