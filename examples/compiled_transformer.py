# %% [markdown]
# # A converted transformer under torch.compile
#
# A small transformer sorts sequences by the token that is hidden in them. It is converted, compiled, and trained with
# straight-through masks, eagerly and compiled; what a step takes with each is printed. Convert first and compile then.

# %%
import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import contextual_dropout as cd

SHORT = "--short" in sys.argv
WIDTH, LAYERS, LENGTH, CLASSES, STEPS = (16, 1, 8, 4, 60) if SHORT else (64, 2, 32, 8, 300)
torch.manual_seed(0)


# %% [markdown]
# ## The network and its data
#
# Each sequence is noise but for one token, whose direction is the class.


# %%
class Classifier(nn.Module):
    """A transformer encoder, and a linear layer on the mean of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.outputs = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.outputs(self.encoder(x).mean(1))
        return logits


directions = 6 * F.normalize(torch.randn(CLASSES, WIDTH), dim=-1)


def batch(size: int = 32) -> tuple[Tensor, Tensor]:
    x, y = torch.randn(size, LENGTH, WIDTH), torch.randint(CLASSES, (size,))
    x[torch.arange(size), torch.randint(LENGTH, (size,))] += directions[y]
    return x, y


# %% [markdown]
# ## Training
#
# The same loop for both; `cd.ELBO` is given what its closure calls. The first steps, in which torch compiles, are not
# counted.


# %%
def train(model: nn.Module, network: nn.Module) -> float:
    """Train, and return the median time of a step in seconds."""
    objective = cd.ELBO(network, "straight-through", kl_weight=1e-3)
    optimizer = torch.optim.Adam(cd.parameter_groups(model, phi={"lr": 1e-2}), lr=3e-3)
    times = []
    for _ in range(STEPS):
        x, y = batch()
        start = time.perf_counter()
        optimizer.zero_grad()
        objective(lambda x=x, y=y: -F.cross_entropy(network(x), y, reduction="none")).loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return torch.tensor(times[STEPS // 3 :]).median().item()


seconds, accuracy = {}, {}
test_x, test_y = batch(400)
for kind in ("eager", "compiled"):
    model = cd.contextualize(Classifier(), temperature=1.0, prior="fixed", example=test_x[:1])
    network = torch.compile(model) if kind == "compiled" else model
    seconds[kind] = train(model.train(), network)
    prediction = cd.predict(model.eval(), test_x, samples=20, seed=0)
    accuracy[kind] = (prediction.label == test_y).float().mean().item()
    print(f"{kind:<9} {1e3 * seconds[kind]:6.1f} ms a step, {100 * accuracy[kind]:.1f}% right")

# %% [markdown]
# ## The ratio
#
# It depends on the machine, the compiler and the size of the network: small networks on a processor gain little.

# %%
print(f"a compiled step takes {seconds['compiled'] / seconds['eager']:.2f} of the time of an eager one")
print(cd.probe(network, test_x))
