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

BATCH = {"resnet18": 16, "wrn-28-10": 8}
MEMORY_BATCH = {"resnet18": 32, "wrn-28-10": 16}
ROUNDS = {"resnet18": 9, "wrn-28-10": 6}
#: The paper's: parameters in millions and seconds per step, ResNet-18 only.
PAPER = {"plain": (11.70, 1.44), "gaussian dropout": (11.70, 1.50), "contextual gaussian": (11.88, 1.64)}
STEP_BARS = {
    ("resnet18", "contextual gaussian"): 1.12,
    ("wrn-28-10", "contextual bernoulli, sampled-arm (k=1)"): 1.45,
}
MEMORY_BAR, PSEUDO_BAR = 1.3, 0.60


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


def pseudo() -> float:
    """The 12 pseudo passes of a sequential step of WRN-28-10, relative to 12 forward passes."""
    model = build("wrn-28-10", "contextual bernoulli, sequential-arm")
    x, y = torch.rand(BATCH["wrn-28-10"], 3, 32, 32), torch.randint(10, (BATCH["wrn-28-10"],))
    return pseudo_passes_of(model, x.to(memory_format=torch.channels_last), y, rounds=5, warmup=1)["replayed"]


def show(network: str, rows: dict[str, dict[str, float]]) -> None:
    print(f"\n{network}, batch {BATCH[network]} (memory: {MEMORY_BATCH[network]}), relative to plain")
    print(f"  {'':42s} parameters   s/step   step            memory")
    for variant, row in rows.items():
        bar = STEP_BARS.get((network, variant))
        verdict = "        " if bar is None else f"(<= {bar:.2f})"
        paper = (
            f"   paper: {PAPER[variant][0]:.2f}M, {PAPER[variant][1] / PAPER['plain'][1]:.2f}"
            if (network == "resnet18" and variant in PAPER)
            else ""
        )
        print(
            f"  {variant:42s} {row['parameters'] / 1e6:9.2f}M {row['seconds']:8.2f} {row['step']:6.2f} {verdict}"
            f" {row['memory']:6.2f} ({row['bytes'] / 2**20:.0f} MiB){paper}"
        )


def main() -> None:
    warnings.simplefilter("ignore", cd.SaturationWarning)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    start = time.time()
    table = {}
    for network in NETWORKS:
        table[network] = costs(network)
        show(network, table[network])
    ratio = pseudo()
    print(f"\nThe 12 pseudo passes of WRN-28-10, relative to 12 forward passes: {ratio:.2f} (<= {PSEUDO_BAR:.2f})")
    bars = {"step": {" ".join(key): value for key, value in STEP_BARS.items()}, "memory": MEMORY_BAR}
    record.write("convolutional", start, costs=table, pseudo_passes=ratio, bars={**bars, "pseudo_passes": PSEUDO_BAR})


if __name__ == "__main__":
    main()
