"""Peak memory of a training step, in a process of its own: ``python benchmarks/peak_memory.py NETWORK VARIANT BATCH``.

Prints how far the process's peak rose above what it needed before there was a network.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch
from convolutional import build, training_step


def peak_bytes() -> int:
    """The most memory that this process has had so far.

    Linux counts in KiB. Not getrusage's figure: a process inherits that of the one that started it.
    """
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0])


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
