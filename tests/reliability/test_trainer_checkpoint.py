"""A checkpoint of the Trainer whose objective cannot be trusted is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from contextual_dropout.integrations.transformers import OBJECTIVE, ELBOTrainer
from tests.integrations.models import arguments, bert


def test_an_objective_that_asks_for_memory_is_refused(tmp_path: Path) -> None:
    """``torch.load(weights_only=True)`` would have given it any amount."""
    for resumed in (False, True):
        model, examples = bert()
        args = arguments(tmp_path, max_steps=3 if resumed else 1, save_strategy="steps", save_steps=1)
        trainer = ELBOTrainer(model, args, train_dataset=examples)
        if not resumed:
            trainer.train()
    path = tmp_path / "checkpoint-1" / OBJECTIVE
    torch.save(trainer.elbo.state_dict() | {"more": bytearray(8)}, path)
    with pytest.raises(ValueError, match=r"objective\.pt cannot be read \(it asks for memory.* another checkpoint"):
        trainer.train(resume_from_checkpoint=str(path.parent))
    path.unlink()
    with pytest.warns(UserWarning, match=r"objective\.pt is missing: the KL weight's schedule and .* start again"):
        trainer.train(resume_from_checkpoint=str(path.parent))
