"""The commands: list what can be run, run it, look at the results.

Heavy imports (torch, matplotlib) happen in the commands that need them, so that ``--help`` is quick.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from contextual_dropout_lab.cli.options import (
    DataDirectory,
    Networks,
    Preset,
    Processes,
    Records,
    Work,
    networks_for,
    parse_assignments,
)

if TYPE_CHECKING:
    from contextual_dropout_lab.runs.config import RunConfig
    from contextual_dropout_lab.store.results import Results

__all__ = ["app"]

app = typer.Typer(
    name="contextual-dropout",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Sample-dependent dropout: run the paper's experiments and look at the results.

Try `contextual-dropout reproduce mnist --preset quick` (some minutes), then `contextual-dropout table mnist-quick`.
Runs that are done are not repeated; a command that was interrupted resumes where it stopped.""",
)
console = Console(quiet=os.environ.get("RANK", "0") != "0")  # only the first process prints


@app.command("list")
def list_(records: Records = Path("experiments/results")) -> None:
    """List what can be run, and how much of it is done."""
    from contextual_dropout_lab.runs.config import experiment_names, load_experiment
    from contextual_dropout_lab.store.results import Results

    results = Results(records, Path())
    for name in experiment_names():
        experiment = load_experiment(name)
        table = Table(title=name, title_justify="left")
        for column in ("preset", "settings", "methods", "runs", "done"):
            table.add_column(column)
        for preset, values in experiment.presets.items():
            runs = list(experiment.runs(preset))
            done = sum(results.read(config) is not None for config in runs)
            settings = ", ".join(f"{setting}: {seeds} seeds" for setting, seeds in values["seeds"].items())
            methods = len({config.method for config in runs})
            table.add_row(preset, settings, str(methods), str(len(runs)), str(done))
        console.print(table)
        console.print(f"methods: {', '.join(experiment.methods)}\n", highlight=False)


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="Name, or path of a YAML file.")],
    setting: Annotated[str, typer.Argument(help="For example noisy or original.")],
    method: Annotated[str, typer.Argument(help="For example contextual-bernoulli.")],
    seed: Annotated[int, typer.Option(help="Of initialisation, data order, noise and masks.")] = 0,
    preset: Preset = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="field=value, e.g. epochs=3 or objective.kl_weight=0.01; repeat.")
    ] = None,
    records: Records = Path("experiments/results"),
    work: Work = Path("runs"),
    networks: Networks = None,
    data: DataDirectory = None,
) -> None:
    """Do one run: train, evaluate, write its record.

    Example: `contextual-dropout run mnist noisy contextual-bernoulli --set epochs=3`
    """
    from contextual_dropout_lab.cli.progress import Bars
    from contextual_dropout_lab.launch.local import sweep
    from contextual_dropout_lab.runs.config import load_experiment
    from contextual_dropout_lab.store.results import Results

    loaded = load_experiment(experiment)
    changes = parse_assignments(override or [])
    config = loaded.run(setting, method, seed, preset or next(iter(loaded.presets)), **changes)
    if changes:  # beside the records of the configuration, not in their place
        config = dataclasses.replace(config, method=f"{method}@{config.digest[:6]}")
    results = Results(records, work, networks_for(records, networks))
    with Bars(console) as bars:
        failures = sweep([config], results, data_directory=data, watcher=bars)
    if failures:
        raise typer.Exit(1)
    console.print(f"record: {results.path(config)}", highlight=False, soft_wrap=True)
    network = work / config.name
    where = network if (network / "model.safetensors").exists() else "not on this machine; --work says where to look"
    console.print(f"network: {where}", highlight=False, soft_wrap=True)


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help="Name, or path of a YAML file.")],
    preset: Preset = None,
    processes: Processes = None,
    records: Records = Path("experiments/results"),
    work: Work = Path("runs"),
    networks: Networks = None,
    page: Annotated[
        Path | None, typer.Option(help="The page to write; by default RESULTS-EXPERIMENT.md beside the records.")
    ] = None,
    data: DataDirectory = None,
    cluster: Annotated[
        str | None, typer.Option(help="slurm: each run is a job there (submitit). local: a process of its own here.")
    ] = None,
    job: Annotated[
        list[str] | None, typer.Option(help="For the cluster, e.g. slurm_partition=gpu or timeout_min=240; repeat.")
    ] = None,
) -> None:
    """Do all runs of an experiment, then write its tables and plots.

    `quick` shows that everything works; `paper` is the real thing (hours). Interrupt it as you like: the same
    command resumes, and ends with the same numbers. On a GPU runs go one after the other; where there are several,
    start the command once for each, with its number in `CUDA_VISIBLE_DEVICES`: they share the runs.
    """
    from contextual_dropout_lab.cli.progress import Bars, summary_of
    from contextual_dropout_lab.launch.local import sweep
    from contextual_dropout_lab.runs.config import load_experiment
    from contextual_dropout_lab.runs.curves import curve_records
    from contextual_dropout_lab.runs.ensembles import ensemble_records
    from contextual_dropout_lab.store.results import Results

    if cluster is not None:
        from contextual_dropout_lab.launch.slurm import cluster_sweep, executor_for
    loaded = load_experiment(experiment)
    configs = list(loaded.runs(preset or next(iter(loaded.presets))))
    results = Results(records, work, networks_for(records, networks))
    with Bars(console) as bars:
        if cluster is None:
            failures = sweep(configs, results, processes=processes or _at_a_time(), data_directory=data, watcher=bars)
        else:
            executor = executor_for(cluster, work / "jobs", parse_assignments(job or []))
            failures = cluster_sweep(configs, results, executor, data_directory=data, watcher=bars)
    if any(results.read(config) is not None for config in configs):
        curve_records(configs, results, data)
        _say_what_is_left_out(len(ensemble_records(configs, results, data)), configs, work)
        _write_page(results, configs[0].experiment, page)
    if failures:
        console.print(summary_of(failures, len(configs)), highlight=False, soft_wrap=True)
        raise typer.Exit(1)


@app.command()
def table(
    experiment: Annotated[str, typer.Argument(help="Whose results: mnist, mnist-quick, mnist-validation …")],
    names: Annotated[list[str] | None, typer.Argument(help="Which tables; all by default.")] = None,
    records: Records = Path("experiments/results"),
) -> None:
    """Print the tables of the paper next to ours, as far as there are results."""
    from contextual_dropout_lab.report import all_tables, summarise, to_markdown, to_rich
    from contextual_dropout_lab.store.results import Results

    found = all_tables(summarise(Results(records, Path()), experiment))
    unknown = sorted(set(names or []) - set(found))
    if unknown:
        raise typer.BadParameter(f"no table {', '.join(unknown)}; there are {', '.join(found)}")
    for name in names or found:
        if console.is_terminal:
            console.print(to_rich(found[name]))
        else:  # in a pipe, columns would be cut to the width of a terminal
            print(to_markdown(found[name]))


@app.command()
def figure(
    experiment: Annotated[str, typer.Argument(help="Whose results.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for SVG files.")] = Path("figures"),
    records: Records = Path("experiments/results"),
) -> None:
    """Draw all plots for which there are results."""
    from contextual_dropout_lab.report import save_all
    from contextual_dropout_lab.store.results import Results

    for path in save_all(Results(records, Path()), experiment, output):
        console.print(str(path), highlight=False, soft_wrap=True)


@app.command()
def predict(
    network: Annotated[Path, typer.Argument(help="Folder of a finished run, e.g. runs/mnist/noisy/concrete/seed-0.")],
    images: Annotated[
        list[Path] | None,
        typer.Argument(help="Image files, JPEG or PNG; digits light on dark. Without any, the test set."),
    ] = None,
    count: Annotated[int, typer.Option(help="How many test images to show.")] = 10,
    samples: Annotated[int, typer.Option(help="Sampled masks.")] = 20,
    noise: Annotated[
        float | None,
        typer.Option(help="Noise on images; by default as in training on test images, none on files.", min=0),
    ] = None,
    threshold: Annotated[float, typer.Option(help="Certain: p-value below it.")] = 0.05,
    data: DataDirectory = None,
) -> None:
    """Predict with a trained network: label, confidence, p-value, and whether the top class stands out."""
    from contextual_dropout_lab.cli.predict_command import prediction_table

    console.print(prediction_table(network, images or [], count, samples, noise, threshold, data))


@app.command()
def inspect(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs, e.g. runs/mnist/noisy/*/seed-0.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for PNG files.", file_okay=False)] = Path(
        "figures"
    ),
    count: Annotated[int, typer.Option(help="Images in a plot.", min=1, max=40)] = 8,
    noise: Annotated[float | None, typer.Option(help="Noise on test images; by default as in training.", min=0)] = None,
    data: DataDirectory = None,
) -> None:
    """Draw the most uncertain test images of trained networks, and Q-Q plots of what their t-tests assume to be normal.

    For runs on questions about images (easy-vqa, vqa) it draws panels: image, question, and the probable answers.
    """
    from contextual_dropout_lab.cli.inspect_command import inspect_runs

    inspect_runs(runs, output, count, noise, data, console)


@app.command()
def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Experiments by name (mnist, mnist-quick) or a part of one (mnist/noisy), folders of runs "
            "(runs/mnist/noisy/*/seed-0), or folders that hold `records` and `work` (runs/demo)."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the page, index.html.", file_okay=False)
    ] = Path("report"),
    records: Records = Path("experiments/results"),
    work: Work = Path("runs"),
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the data sets, for the gallery; else CONTEXTUAL_DROPOUT_DATA or the cache."),
    ] = None,
) -> None:
    """Write one HTML page of tables, interactive plots and a gallery of examples; it needs no network.

    It only reads. Parts that need missing predictions or data are left out, and the page says so.

    Example: `contextual-dropout report mnist -o report`
    """
    from contextual_dropout_lab.cli.report_command import report_runs
    from contextual_dropout_lab.store.results import Results

    report_runs(runs, output, Results(records, work), data, console)


@app.command()
def serve(
    checkpoint: Annotated[
        Path | None, typer.Argument(help="Folder of a finished run; by default the digits of `make demo`.")
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(help="Folder of a run to compare with; by default mc-bernoulli of the same experiment and seed."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)] = 8000,
    threshold: Annotated[float, typer.Option(help="Certain: p-value below it.", min=1e-6, max=0.5)] = 0.05,
) -> None:
    """Open a page on which a trained network answers live: draw a digit or drop an image, and add noise.

    Example: `contextual-dropout serve runs/mnist/noisy/contextual-bernoulli/seed-0`
    """
    from contextual_dropout_lab.cli.serve_command import serve_network

    serve_network(checkpoint, beside, host, port, threshold, console)


@app.command("data")
def data_(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets to get; without any, list them.")] = None,
    directory: DataDirectory = None,
) -> None:
    """Find the data sets, or fetch them: `contextual-dropout data mnist fashion-mnist kmnist`."""
    from contextual_dropout_lab.cli.data_command import dataset_table, get_datasets

    failed = get_datasets(names or [], directory, console)
    console.print(dataset_table(directory))
    if failed:
        raise typer.Exit(1)


def _at_a_time() -> int:
    """The number of runs side by side by default: one a core, or one alone where all would be on the same GPU."""
    import torch

    return 1 if torch.cuda.is_available() else os.cpu_count() or 1


def _say_what_is_left_out(ensembles: int, configs: list[RunConfig], work: Path) -> None:
    groups = len({(config.setting, config.method) for config in configs})
    if ensembles < groups:
        missing = f"{groups - ensembles} of {groups}"
        console.print(f"ensembles: {missing} left out: no predictions in {work}, and no tracked networks (--networks)")


def _write_page(results: Results, experiment: str, page: Path | None) -> None:
    """Write the page, and its plots beside it."""
    from contextual_dropout_lab.report import save_all, write_page

    path = page or results.records.parent / f"RESULTS-{experiment}.md"
    save_all(results, experiment, path.parent / "figures" / experiment)
    write_page(results, experiment, path)
    console.print(f"results: {path}", highlight=False, soft_wrap=True)
