r"""The wide residual network of the paper's CIFAR experiments (Zagoruyko & Komodakis 2016).

**Where the dropout is.** The paper applies dropout "to the first convolutional layer in each network block", 12 in all,
and the mask of a layer multiplies its *output*. Its source lacks the picture that would show on which side of the
normalisation. We put it where wide residual networks have it, between the two convolutions and after the ReLU::

    x -- bn1 -- relu -- conv1 -- bn2 -- relu -- dropout -- conv2 -- + --
     \_________________ identity, or 1x1 convolution ______________/

Sites have the same size on either side of ``bn2``. Behind it a dropped channel is really gone (``bn2`` would turn its
zeros into a constant), the statistics of ``bn2`` hold for the point estimate too, and the encoder reads activations of
a known scale.

**Sizes.** WRN-28-10 for 10 classes has 36,479,194 parameters, the paper's 36.5M. Its 12 sites on 160, 320 and 640
channels (four of each) add ``sum(2 C W + W + C + 1)``, W = C // gamma: 139,032 for gamma = 32. That makes 36,618,226,
the paper's 36.6M, while gamma = 8, 10 and 16 give 37.0M, 36.9M and 36.8M: the paper's size fits gamma = 32, as that of
its perceptron does (``cd.contextualize(..., reduction=32)``).
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from contextual_dropout_lab.models.layers import check_drop_rate, check_size, convolution, initialise

__all__ = ["WideResNet", "wide_resnet"]


class WideBlock(nn.Module):
    """Two pre-activated convolutions with dropout between them, added to the input.

    Args:
        before: channels of the input.
        after: channels of the output.
        stride: of the first convolution and of the shortcut.
        p: drop rate.

    Shape:
        (B, before, H, W) to (B, after, ceil(H / stride), ceil(W / stride)).
    """

    def __init__(self, before: int, after: int, stride: int, p: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(before)
        self.conv1 = convolution(before, after, stride=stride)
        self.bn2 = nn.BatchNorm2d(after)
        self.dropout = nn.Dropout2d(p)
        self.conv2 = convolution(after, after)
        self.shortcut = None if before == after and stride == 1 else convolution(before, after, kernel=1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        activated = F.relu(self.bn1(x))
        residual: Tensor = self.conv2(self.dropout(F.relu(self.bn2(self.conv1(activated)))))
        # Where the shape changes, the shortcut reads the activated input, as in the authors' network.
        return residual + (x if self.shortcut is None else self.shortcut(activated))


class WideResNet(nn.Module):
    """Three groups of blocks; see :func:`wide_resnet`, which builds it."""

    def __init__(self, blocks: int, width: int, classes: int, p: float) -> None:
        super().__init__()
        self.conv1 = convolution(3, 16)
        self.layer1 = _group(16, 16 * width, blocks, 1, p)
        self.layer2 = _group(16 * width, 32 * width, blocks, 2, p)
        self.layer3 = _group(32 * width, 64 * width, blocks, 2, p)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64 * width, classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, 3, H, W)."""
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))  # (B, 64 width, H / 4, W / 4)
        logits: Tensor = self.fc(self.avgpool(F.relu(self.bn1(x))).flatten(1))
        return logits


def wide_resnet(depth: int = 28, width: int = 10, classes: int = 10, p: float = 0.2) -> WideResNet:
    """WRN-depth-width with channel dropout between the convolutions of every block.

    The dropout is ``nn.Dropout2d``: the paper's masks for convolutions are broadcast over space, "similar to Spatial
    Dropout", and plain dropout in the same shape is the fair comparison. ``cd.contextualize`` makes each a site with
    one logit per channel.

    Args:
        depth: 6 n + 4, for n blocks in each of the three groups.
        width: factor of the groups' 16, 32 and 64 channels.
        classes: logits.
        p: drop rate of the dropout layers; the paper takes 0.2, as for its perceptron.

    Shape:
        (B, 3, H, W) to (B, classes), any H and W; the images of the paper are 32x32.

    Example:
        >>> import torch
        >>> import contextual_dropout as cd
        >>> model = cd.contextualize(wide_resnet(depth=10, width=1), example=torch.randn(1, 3, 8, 8))
        >>> {name: site.features for name, site in cd.sites(model).items()}
        {'layer1.0.dropout': 16, 'layer2.0.dropout': 32, 'layer3.0.dropout': 64}
        >>> model(torch.randn(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> with torch.device("meta"):
        ...     print(sum(parameter.numel() for parameter in wide_resnet().parameters()))  # the paper's 36.5M
        36479194
    """
    check_size("depth", depth)
    check_size("width", width)
    check_size("classes", classes)
    check_drop_rate(p)
    blocks, rest = divmod(depth - 4, 6)
    if blocks < 1 or rest:
        raise ValueError(f"the depth of a wide residual network is 6 n + 4 (10, 16, 22, 28, ...), got {depth}")
    return WideResNet(blocks, width, classes, p)


def _group(before: int, after: int, blocks: int, stride: int, p: float) -> nn.Sequential:
    """Blocks of one resolution: the first changes channels and stride."""
    following = (WideBlock(after, after, 1, p) for _ in range(blocks - 1))
    return nn.Sequential(WideBlock(before, after, stride, p), *following)
