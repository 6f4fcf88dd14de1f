"""Work in a forked process that may take so much memory and time: what came of it, and what it took.

To be used by scripts that have imported everything and have no other threads.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MEGABYTE = 2**20


def confined(work: Callable[[], Any], megabytes: int, seconds: int) -> dict[str, Any]:
    """The value of ``work`` under "value", if it could be written as JSON, or else what ended it under "failure".

    Args:
        work: what is done.
        megabytes: of address space that it may ask for on top of what there is; asking for more is a MemoryError.
        seconds: after which it is ended.

    Returns:
        Also "megabytes", by how much the memory in use grew at most, and "seconds" of the processor.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _limit(megabytes, seconds)
        before, start = _memory("VmRSS"), time.process_time()
        try:
            told = {"value": work()}
        except BaseException:
            told = {"failure": traceback.format_exc()}
        told |= {"megabytes": (_memory("VmHWM") - before) // 1024, "seconds": time.process_time() - start}
        with os.fdopen(writer, "w") as pipe:
            json.dump(told, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        return {"failure": f"the process was ended by signal {signal.Signals(-status).name}"}
    told = json.loads(answer)
    return told  # type: ignore[no-any-return]


def _limit(megabytes: int, seconds: int) -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts from here
    size = _memory("VmSize") * 1024 + megabytes * MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    signal.alarm(seconds)


def _memory(name: str) -> int:
    """In kilobytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{name}:"))


def run_script(module: str, *arguments: str, seconds: int) -> Iterator[dict[str, Any]]:
    """The lines of JSON that ``python -m module arguments`` prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error::UserWarning"}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=seconds)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        yield json.loads(line)
