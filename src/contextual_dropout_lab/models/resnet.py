"""ResNet-18 (He et al. 2016) with torchvision's parameter names, for its pretrained weights.

**Where the dropout is.** The paper applies contextual dropout "to the convolutional layers in ResNet-18" and does not
say to which. Its sizes do, nearly. A site on C channels has ``2 C W + W + C + 1`` parameters, W = C // gamma, and the
eight blocks have 64, 64, 128, 128, 256, 256, 512 and 512 channels:

=================================  =====  =======  ===========  ==============
sites on                           gamma  added    parameters   and statistics
=================================  =====  =======  ===========  ==============
(none)                                                 11.690M         11.699M
first convolution of each block        8  176,248      11.866M         11.875M
both convolutions of each block       16  178,176      11.868M         11.877M
first convolution of each block       16   89,088      11.779M         11.788M
both convolutions of each block        8  352,496      12.042M         12.052M
inputs of the blocks                   8  111,232      11.801M         11.810M
=================================  =====  =======  ===========  ==============

The paper says 11.70M without and 11.88M with sites. One gets both by counting the statistics of the batch
normalisations (9,620 numbers) along, with the sites of the second or third row and with no other of these. Its other
table, 11.6M and 11.8M, is the same cut off after the first decimal. Both placements are here, as ``dropout="first"``
and ``"every"``. The first is the default: gamma = 8 is the default of the sites, and the paper's wide residual network
has its sites there too.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from contextual_dropout_lab.models.layers import check_drop_rate, check_size, convolution, initialise

__all__ = ["ResNet18", "resnet18"]

Dropout = Literal["first", "every"]
Stem = Literal["imagenet", "small"]


class BasicBlock(nn.Module):
    """Two convolutions, each normalised, added to the input.

    ``relu(x + dropout2(bn2(conv2(dropout1(relu(bn1(conv1(x))))))))``: dropout behind the normalisation, which would
    otherwise turn the zeros of a dropped channel into a constant.

    Args:
        before: channels of the input.
        after: channels of the output.
        stride: of the first convolution and of the shortcut.
        p: drop rate.
        dropout: on the first convolution or on both.

    Shape:
        (B, before, H, W) to (B, after, ceil(H / stride), ceil(W / stride)).
    """

    def __init__(self, before: int, after: int, stride: int, p: float, dropout: Dropout) -> None:
        super().__init__()
        self.conv1 = convolution(before, after, stride=stride)
        self.bn1 = nn.BatchNorm2d(after)
        self.dropout1 = nn.Dropout2d(p)
        self.conv2 = convolution(after, after)
        self.bn2 = nn.BatchNorm2d(after)
        self.dropout2 = nn.Dropout2d(p) if dropout == "every" else nn.Identity()
        self.downsample: nn.Sequential | None = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(convolution(before, after, kernel=1, stride=stride), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        hidden = self.dropout1(F.relu(self.bn1(self.conv1(x))))
        residual: Tensor = self.dropout2(self.bn2(self.conv2(hidden)))
        return F.relu(residual + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """Four groups of two blocks; see :func:`resnet18`, which builds it."""

    def __init__(self, classes: int, p: float, dropout: Dropout, stem: Stem) -> None:
        super().__init__()
        self.conv1 = convolution(3, 64, kernel=7, stride=2) if stem == "imagenet" else convolution(3, 64)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if stem == "imagenet" else nn.Identity()
        self.layer1 = _group(64, 64, 1, p, dropout)
        self.layer2 = _group(64, 128, 2, p, dropout)
        self.layer3 = _group(128, 256, 2, p, dropout)
        self.layer4 = _group(256, 512, 2, p, dropout)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, 3, H, W)."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))  # (B, 512, H / 32, W / 32); small stem: / 8
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def resnet18(classes: int = 1000, p: float = 0.2, *, dropout: Dropout = "first", stem: Stem = "imagenet") -> ResNet18:
    """ResNet-18 with channel dropout in every block.

    The state dict has the names and shapes of torchvision's, 122 entries, so that its weights load with
    :func:`~contextual_dropout_lab.models.load_weights` or ``load_state_dict``; dropout has none. ``cd.contextualize``
    makes each ``nn.Dropout2d`` a site with one logit per channel.

    Args:
        classes: logits.
        p: drop rate of the dropout layers. The paper gives none for this network; 0.2 is that of its others.
        dropout: behind which convolutions of a block: the ``"first"``, or ``"every"`` one of the two. The paper's size
            follows from ``reduction=8`` of the sites with the first and 16 with the second.
        stem: ``"imagenet"``, a 7x7 convolution and a max-pool that divide the resolution by 4, or ``"small"``, a 3x3
            convolution that keeps it, for images of 32 or 64 pixels. All names stay; ``conv1.weight`` is (64, 3, 3, 3)
            instead of (64, 3, 7, 7), so that pretrained weights need ``load_weights(..., skip=("conv1",))``.

    Shape:
        (B, 3, H, W) to (B, classes), any H and W.

    Example:
        >>> import torch
        >>> import contextual_dropout as cd
        >>> model = cd.contextualize(resnet18(), family="gaussian", example=torch.randn(1, 3, 32, 32))
        >>> cd.count_parameters(model)
        {'theta': 11689512, 'phi': 176240, 'eta': 8}
        >>> [site.features for site in cd.sites(model).values()]
        [64, 64, 128, 128, 256, 256, 512, 512]
    """
    check_size("classes", classes)
    check_drop_rate(p)
    if dropout not in ("first", "every"):
        raise ValueError(f"dropout is behind the 'first' or 'every' convolution of a block, got {dropout!r}")
    if stem not in ("imagenet", "small"):
        raise ValueError(f"stem must be 'imagenet' or 'small', got {stem!r}")
    return ResNet18(classes, p, dropout, stem)


def _group(before: int, after: int, stride: int, p: float, dropout: Dropout) -> nn.Sequential:
    """Two blocks of one resolution: the first changes channels and stride."""
    return nn.Sequential(BasicBlock(before, after, stride, p, dropout), BasicBlock(after, after, 1, p, dropout))
