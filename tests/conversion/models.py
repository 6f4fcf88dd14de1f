"""Networks as people write them, with dropout of every kind, and an input for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification

Inputs = dict[str, Any] | tuple[Any, ...]


def mlp() -> tuple[nn.Module, Inputs]:
    model = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 16), nn.SELU(), nn.AlphaDropout(0.1)
    )
    return nn.Sequential(*model, nn.Linear(16, 3)), (torch.randn(5, 6),)


def plain_mlp() -> nn.Sequential:
    first, second = (nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1)), (nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.4))
    return nn.Sequential(*first, *second, nn.Linear(8, 2))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop, self.unused = nn.Linear(4, 4), nn.Dropout(0.2), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.drop(self.linear(x)), 0.5, self.training)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.drop2d, self.drop = nn.Dropout2d(0.2), nn.Dropout(0.1)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.drop2d(self.conv(torch.relu(self.norm(x)))))
        out: Tensor = self.head(self.drop(x.mean((2, 3))))
        return out


def residual() -> tuple[nn.Module, Inputs]:
    return Residual(), (torch.randn(4, 3, 6, 6),)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 2, 24, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(x, src_key_padding_mask=padding)[:, 0])
        return out


def encoder() -> tuple[nn.Module, Inputs]:
    padding = torch.arange(7).expand(4, 7) >= torch.tensor([[7], [5], [3], [7]])
    return Encoder(), (torch.randn(4, 7, 12), padding)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.rnn = kind(5, 6, 3, dropout=0.2, **options)  # type: ignore[call-arg]
        self.head = nn.LazyLinear(3)

    def forward(self, x: Any) -> Tensor:
        _, final = self.rnn(x)
        state = final[0] if isinstance(final, tuple) else final
        out: Tensor = self.head(state[-1])
        return out


def lstm() -> tuple[nn.Module, Inputs]:
    return Recurrent(nn.LSTM, batch_first=True), (torch.randn(4, 6, 5),)


def bidirectional_gru() -> tuple[nn.Module, Inputs]:
    return Recurrent(nn.GRU, bidirectional=True), (torch.randn(6, 4, 5),)


def packed_lstm() -> tuple[nn.Module, Inputs]:
    sequences = [torch.randn(length, 5) for length in (3, 6, 4)]
    return Recurrent(nn.LSTM, proj_size=4), (nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False),)


class BasicBlock(nn.Module):
    """torchvision's, in-place ReLU included."""

    def __init__(self, planes_in: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(planes_in, planes, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(planes), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.downsample = (
            nn.Sequential(nn.Conv2d(planes_in, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))
            if stride != 1 or planes_in != planes
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        relu: Tensor = self.relu(out)
        return relu


class ResNet18(nn.Module):
    """torchvision's architecture and names at a quarter of its width."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64, 128)
        self.conv1 = nn.Conv2d(3, 16, 7, 2, 3, bias=False)
        self.bn1, self.relu, self.maxpool = nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        for i, (before, width) in enumerate(zip((16, *widths), widths, strict=False)):
            blocks = BasicBlock(before, width, 1 if i == 0 else 2), BasicBlock(width, width, 1)
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for i in range(1, 5):
            x = self.get_submodule(f"layer{i}")(x)
        out: Tensor = self.fc(self.avgpool(x).flatten(1))
        return out


def resnet18() -> tuple[nn.Module, Inputs]:
    return ResNet18(), (torch.randn(2, 3, 32, 32),)


def bert() -> tuple[nn.Module, Inputs]:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=50, num_labels=3, attention_probs_dropout_prob=0.5, **sizes)
    model = BertForSequenceClassification(config)
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    return model, {"input_ids": torch.randint(50, (2, 7)), "attention_mask": mask}


def vit() -> tuple[nn.Module, Inputs]:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.5}
    config = ViTConfig(image_size=8, patch_size=4, num_labels=3, **rates, **sizes)
    return ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 8, 8)}


#: Each with the options that its conversion needs.
MODELS: dict[str, tuple[Callable[[], tuple[nn.Module, Inputs]], dict[str, Any]]] = {
    "mlp": (mlp, {}),
    "residual": (residual, {"after": "stem"}),
    "encoder": (encoder, {}),
    "lstm": (lstm, {}),
    "bidirectional_gru": (bidirectional_gru, {}),
    "packed_lstm": (packed_lstm, {}),
    "resnet18": (resnet18, {"after": r"layer\d\.\d\.conv1"}),
    "bert": (bert, {}),
    "vit": (vit, {}),
}


def run(model: nn.Module, inputs: Inputs) -> Tensor:
    out = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    return out if isinstance(out, Tensor) else out.logits


def build(name: str) -> tuple[nn.Module, Inputs, dict[str, Any]]:
    torch.manual_seed(0)
    maker, options = MODELS[name]
    model, inputs = maker()
    model.eval()
    with torch.no_grad():
        run(model, inputs)
    return model, inputs, options
