"""The cost table of ResNet-18 and WRN-28-10: ``make benchmark-convolutional`` (some 15 minutes on one thread).

Times and memory are relative to the plain network with its dropout; written to benchmarks/results/convolutional.json.
"""

from __future__ import annotations

import time
import warnings

import peak_memory
import record
import torch
from convolutional import NETWORKS, VARIANTS, build, training_step
from timing import interleaved
from training_step import pseudo_passes_of

import contextual_dropout as cd
from contextual_dropout_lab.report.paper import RESNET18_COST

BATCH = {"resnet18": 16, "wrn-28-10": 8}
MEMORY_BATCH = {"resnet18": 32, "wrn-28-10": 16}
ROUNDS = {"resnet18": 9, "wrn-28-10": 6}
STEP_BARS = {
    ("resnet18", "contextual gaussian"): 1.12,
    ("wrn-28-10", "contextual bernoulli, sampled-arm (k=1)"): 1.45,
}
#: Of the steps of WRN-28-10 with sites, and of its sequential step.
MEMORY_BAR, SEQUENTIAL_BAR = 1.3, 0.60
SEQUENTIAL = "contextual bernoulli, sequential-arm"


def costs(network: str) -> dict[str, dict[str, float]]:
    """Parameters, and time and memory of a step relative to plain, of every variant."""
    models = {variant: build(network, variant) for variant in VARIANTS}
    sizes = {variant: sum(p.numel() for p in model.parameters()) for variant, model in models.items()}
    steps = {variant: training_step(model, network, variant, BATCH[network]) for variant, model in models.items()}
    seconds = interleaved(steps, ROUNDS[network], warmup=1)
    del models, steps
    memory = {variant: peak_memory.measured(network, variant, MEMORY_BATCH[network]) for variant in VARIANTS}
    return {
        variant: {
            "parameters": sizes[variant],
            "seconds": seconds[variant],
            "step": seconds[variant] / seconds["plain"],
            "bytes": memory[variant],
            "memory": memory[variant] / memory["plain"],
        }
        for variant in VARIANTS
    }


def sequential(rounds: int = 5) -> dict[str, float]:
    """The sequential step of WRN-28-10, relative to one that runs its 12 pseudo passes naively; and these alone."""
    model, batch = build("wrn-28-10", SEQUENTIAL), BATCH["wrn-28-10"]
    steps = {
        name: training_step(model, "wrn-28-10", SEQUENTIAL, batch, replay=name == "replayed")
        for name in ("replayed", "naive")
    }
    seconds = interleaved(steps, rounds, warmup=1)
    x, y = torch.rand(batch, 3, 32, 32).to(memory_format=torch.channels_last), torch.randint(10, (batch,))
    passes = pseudo_passes_of(model, x, y, rounds, warmup=1)["replayed"]
    return {"step": seconds["replayed"] / seconds["naive"], "pseudo_passes": passes}


def show(network: str, rows: dict[str, dict[str, float]]) -> None:
    print(f"\n{network}, batch {BATCH[network]} (memory: {MEMORY_BATCH[network]}), relative to plain")
    print(f"  {'':42s} parameters   s/step   step            memory")
    for variant, row in rows.items():
        bar = STEP_BARS.get((network, variant))
        memory_bar = MEMORY_BAR if network == "wrn-28-10" and variant.startswith("contextual") else None
        paper = ""
        if network == "resnet18" and variant in RESNET18_COST:
            size, seconds = RESNET18_COST[variant]
            paper = f"   paper: {size / 1e6:.2f}M, {seconds / RESNET18_COST['plain'][1]:.2f}"
        print(
            f"  {variant:42s} {row['parameters'] / 1e6:9.2f}M {row['seconds']:8.2f} {row['step']:6.2f} {_shown(bar)}"
            f" {row['memory']:6.2f} {_shown(memory_bar)} ({row['bytes'] / 2**20:.0f} MiB){paper}"
        )


def _shown(bar: float | None) -> str:
    return " " * 9 if bar is None else f"(<= {bar:.2f})"


def main() -> None:
    warnings.simplefilter("ignore", cd.SaturationWarning)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.time()
    table = {}
    for network in NETWORKS:
        table[network] = costs(network)
        show(network, table[network])
    ratios = sequential()
    print("\nWRN-28-10, sequential-arm, relative to 12 pseudo passes that are run naively, from the first layer on:")
    for what, ratio in ratios.items():
        print(f"  {what.replace('_', ' '):14s} {ratio:.2f} {_shown(SEQUENTIAL_BAR)}")
    bars = {"step": {" ".join(key): value for key, value in STEP_BARS.items()}, "memory": MEMORY_BAR}
    record.write("convolutional", start, costs=table, sequential=ratios, bars={**bars, "sequential": SEQUENTIAL_BAR})


if __name__ == "__main__":
    main()
