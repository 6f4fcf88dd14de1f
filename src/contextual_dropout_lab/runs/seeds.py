"""Random streams of a run, each from the run's seed, its purpose and the epoch alone.

Every epoch starts its generators again, so that an interrupted run resumes exactly as if it had not been.
"""

from __future__ import annotations

import numpy as np

__all__ = ["derived_seed"]

_PURPOSES = ("masks", "batches", "prediction")


def derived_seed(seed: int, purpose: str, index: int = 0, rank: int = 0) -> int:
    """A seed for one purpose, epoch and process, unrelated to the others.

    Example:
        >>> derived_seed(0, "masks", 3) == derived_seed(0, "masks", 3) != derived_seed(0, "batches", 3)
        True
    """
    sequence = np.random.SeedSequence((seed, _PURPOSES.index(purpose), index, rank))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
