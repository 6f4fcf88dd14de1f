"""Peak memory of a training step, in a process of its own: ``python benchmarks/peak_memory.py NETWORK VARIANT BATCH``.

Prints how far the process's peak rose above what it needed before there was a network.
"""

from __future__ import annotations

import resource
import subprocess
import sys

import torch
from convolutional import build, training_step


def peak_bytes() -> int:
    """The most memory that this process has had so far; Linux counts in KiB."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(network: str, variant: str, batch: int) -> int:
    """Bytes that two steps need, measured in a fresh process."""
    command = [sys.executable, __file__, network, variant, str(batch)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main(network: str, variant: str, batch: int) -> None:
    torch.set_num_threads(1)
    before = peak_bytes()
    step = training_step(build(network, variant), network, variant, batch)
    for _ in range(2):  # the second has the optimizer's state
        step()
    print(peak_bytes() - before)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
