"""Checkpoints of Fabric that leave nothing in other folders."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import torch

from contextual_dropout.experiments.fabric import TorchCheckpointIO

__all__ = ["DirectCheckpoints"]


class DirectCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint where it is to be: ``Fabric(plugins=[DirectCheckpoints()])``.

    Fabric's own way writes it into the system's folder for temporary files and then moves it. That folder may be
    smaller than a checkpoint, and there a killed process leaves its file for good. To be whole or not there is seen to
    by :func:`~contextual_dropout.experiments.files.replace_file`.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        buffer = io.BytesIO()  # to a file, torch itself would hide that the disk is full
        torch.save(checkpoint, buffer)
        Path(path).write_bytes(buffer.getbuffer())
