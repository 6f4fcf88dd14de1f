"""MCAN, modular co-attention networks for visual question answering (Yu et al. 2019), encoder-decoder.

The question goes through an LSTM and L layers of self-attention, then the image's regions through L layers that attend
to themselves and to the question; both are pooled by attention and fused. Every self-attention layer has four dropout
layers (attention weights, feed-forward, two before residual connections), every guided one six, and the two poolings
one each: 62 for L = 6, as the paper says.

**Sizes.** The paper says 58M and, with contextual dropout, 61M parameters, at gamma = 8 (1 where there are no more
than 8 channels). With a vocabulary of 18,405 words the network has 57.2M, and sites on 512 channels and on 8 heads add
2.1M; but sites on the 2,048 channels inside of the feed-forward layers would add another 12.6M at gamma = 8. The
paper's total follows with gamma = 64 there, a bottleneck of 32 channels: :data:`OVERRIDES`, for ``cd.contextualize``,
gives 60.9M.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contextual_dropout.nn.sequence_dropout import SequenceDropout
from contextual_dropout_lab.models.layers import check_drop_rate, check_size
from contextual_dropout_lab.models.transformer import Attention, FeedForward, Residual, SelfAttention

__all__ = ["MCAN", "OVERRIDES", "mcan"]

Size = Literal["tiny", "small", "large"]
#: The two of the authors, and one for a processor.
SIZES: dict[Size, dict[str, int]] = {
    "tiny": {"hidden": 64, "heads": 4, "layers": 2, "embedding": 32, "pooling": 32, "fused": 64},
    "small": {"hidden": 512, "heads": 8, "layers": 6, "embedding": 300, "pooling": 512, "fused": 1024},
    "large": {"hidden": 1024, "heads": 8, "layers": 6, "embedding": 300, "pooling": 512, "fused": 2048},
}
PADDING = 0
#: ``cd.contextualize(model, reduction=8, overrides=OVERRIDES)``: the paper's number of parameters.
OVERRIDES: dict[str, dict[str, int]] = {r".*\.feed_forward\.dropout\.dropout": {"reduction": 64}}


class GuidedAttention(nn.Module):
    """A sequence attends to itself, then to another: six dropout layers."""

    def __init__(self, hidden: int, heads: int, p: float) -> None:
        super().__init__()
        self.attention, self.guided = Attention(hidden, heads, p), Attention(hidden, heads, p)
        self.feed_forward = FeedForward(hidden, p)
        self.after_attention, self.after_guided = Residual(hidden, p), Residual(hidden, p)
        self.after_feed_forward = Residual(hidden, p)

    def forward(self, x: Tensor, guide: Tensor, padded: Tensor, guide_padded: Tensor) -> Tensor:
        x = self.after_attention(x, self.attention(x, x, padded, padded), padded)
        x = self.after_guided(x, self.guided(x, guide, padded, guide_padded), padded)
        out: Tensor = self.after_feed_forward(x, self.feed_forward(x, padded), padded)
        return out


class AttentivePooling(nn.Module):
    """One vector of a sequence: a mean with learned weights, then a linear layer.

    Shape:
        (B, N, C) to (B, fused).
    """

    def __init__(self, hidden: int, width: int, fused: int, p: float) -> None:
        super().__init__()
        self.score, self.logit = nn.Linear(hidden, width), nn.Linear(width, 1)
        self.dropout = SequenceDropout(p)
        self.merge = nn.Linear(hidden, fused)

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        logits = self.logit(self.dropout(F.relu(self.score(x)), padded))  # (B, N, 1)
        weights = logits.masked_fill(padded.unsqueeze(-1), torch.finfo(logits.dtype).min).softmax(1)
        merged: Tensor = self.merge((weights * x).sum(1))
        return merged


class MCAN(nn.Module):
    """See :func:`mcan`, which builds it."""

    def __init__(
        self,
        words: int,
        answers: int,
        features: int,
        p: float,
        *,
        hidden: int,
        heads: int,
        layers: int,
        embedding: int,
        pooling: int,
        fused: int,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.regions = nn.Linear(features, hidden)
        self.encoder = nn.ModuleList(SelfAttention(hidden, heads, p) for _ in range(layers))
        self.decoder = nn.ModuleList(GuidedAttention(hidden, heads, p) for _ in range(layers))
        self.pool_question = AttentivePooling(hidden, pooling, fused, p)
        self.pool_image = AttentivePooling(hidden, pooling, fused, p)
        self.norm = nn.LayerNorm(fused, eps=1e-6)
        self.answer = nn.Linear(fused, answers)

    def forward(self, features: Tensor, question: Tensor) -> Tensor:
        """Logits of the answers.

        Args:
            features: (B, R, D), one row for each region of the image; padded regions are zero.
            question: (B, T), word indices; 0 is padding.

        Returns:
            (B, answers).
        """
        question_padded, image_padded = question == PADDING, (features == 0).all(-1)
        words: Tensor = self.lstm(self.embedding(question))[0]
        for layer in self.encoder:
            words = layer(words, question_padded)
        regions: Tensor = self.regions(features)
        for layer in self.decoder:
            regions = layer(regions, words, image_padded, question_padded)
        fused = self.pool_question(words, question_padded) + self.pool_image(regions, image_padded)
        logits: Tensor = self.answer(self.norm(fused))
        return logits


def mcan(
    words: int, answers: int = 3129, *, features: int = 2048, p: float = 0.1, size: Size = "small", **options: Any
) -> MCAN:
    """MCAN with dropout in 10 L + 2 places, 62 for L = 6.

    ``cd.contextualize`` makes each of them a site: one keep probability per head on attention weights, one per channel
    elsewhere. No context sees padding.

    Args:
        words: size of the question vocabulary, padding (0) included.
        answers: logits.
        features: D, channels of an image region.
        p: drop rate of all dropout layers.
        size: "small" (hidden 512; the paper's), "large" (1024), or "tiny" (64, two layers) for a processor.
        options: hidden, heads, layers, embedding, pooling and fused, where they differ from the size's.

    Shape:
        Image features (B, R, D) and word indices (B, T) to (B, answers).

    Example:
        >>> import torch
        >>> model = mcan(100, 10, features=16, size="tiny")
        >>> model(torch.randn(2, 5, 16), torch.randint(1, 100, (2, 7))).shape
        torch.Size([2, 10])
        >>> sum(isinstance(module, nn.Dropout) for module in mcan(20, size="large").modules())
        62
    """
    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(map(repr, SIZES))}, got {size!r}")
    unknown = sorted(set(options) - set(SIZES[size]))
    if unknown:
        raise TypeError(f"mcan has no options {', '.join(unknown)}; it has {', '.join(SIZES[size])}")
    check_drop_rate(p)
    shape = SIZES[size] | options
    for name, value in {"words": words, "answers": answers, "features": features, **shape}.items():
        check_size(name, value)
    if shape["hidden"] % shape["heads"]:
        raise ValueError(f"hidden must be a multiple of heads, got {shape['hidden']} and {shape['heads']}")
    return MCAN(words, answers, features, p, **shape)
