"""What is private to torch may be gone in another version of it: nothing but speed may depend on it."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import torch
import torch._C._functorch
import torch._functorch.pyfunctorch

del torch._C._functorch.get_unwrapped
del torch._functorch.pyfunctorch.temporarily_pop_interpreter_stack
import contextual_dropout as cd
from contextual_dropout import batching
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.site, self.dropout = cd.ContextualDropout(50, 0.5), nn.Dropout(0.5)

    def forward(self, x):
        return self.site(x) + self.dropout(x)

assert not batching.AVAILABLE
prediction = cd.predict(Model(), torch.ones(2, 50), samples=6, task="regression")
distances = torch.cdist(prediction.samples.flatten(0, 1), prediction.samples.flatten(0, 1))
assert (distances + torch.eye(12) > 0).all()
"""


def test_without_the_private_names_samples_are_looped() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
