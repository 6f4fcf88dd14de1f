"""Panels that show one example: its image, and the class probabilities over sampled masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from torch import Tensor

from contextual_dropout.prediction.classification import Classification
from contextual_dropout_lab.report.method_names import label
from contextual_dropout_lab.report.plots.style import colour
from contextual_dropout_lab.report.table import p_in_words

__all__ = ["box_plots", "class_names", "label_height", "picture", "shown_classes"]

#: Of more classes than this, only this many are shown.
MANY, SHOWN = 10, 6
#: Longer names are cut; names longer than a digit or two are written at an angle.
LONGEST, UPRIGHT = 14, 2


def picture(axes: Axes, image: Tensor, title: str) -> None:
    """An image (H, W), (1, H, W) or (3, H, W), from its darkest to its brightest value; colours in [0, 1] as is."""
    if image.ndim == 3 and len(image) == 3:
        low, high = min(image.min().item(), 0.0), max(image.max().item(), 1.0)
        axes.imshow(((image - low) / (high - low)).permute(1, 2, 0).numpy(), interpolation="nearest")
    else:
        axes.imshow(image.reshape(image.shape[-2:]).numpy(), cmap="gray", interpolation="nearest")
    axes.set_axis_off()
    axes.set_title(title, fontsize=8)


def box_plots(
    axes: Axes, method: str, prediction: Classification, row: int, classes: Sequence[str], truth: int, threshold: float
) -> None:
    """Box plots of the class probabilities of an example over the K samples; the true class in bold."""
    names, shown = class_names(classes), shown_classes(prediction.mean[row], truth)
    ink = {"color": colour(method)}
    axes.boxplot(
        prediction.samples[:, row, shown].numpy(),  # (K, C)
        positions=range(len(shown)),
        widths=0.6,
        patch_artist=True,
        boxprops={"facecolor": to_rgba(colour(method), 0.3), **ink},
        whiskerprops=ink,
        capprops=ink,
        medianprops={"color": "black"},
        flierprops={"marker": ".", "markersize": 2, "markeredgecolor": colour(method)},
    )
    p_value = float(prediction.p_value[row])
    verdict = "certain" if p_value < threshold else "not certain"
    answer = names[int(prediction.label[row])]
    axes.set_title(f"{label(method)}: {answer}\np {p_in_words(p_value)}, {verdict}", fontsize=7.5)
    axes.set_ylim(-0.04, 1.04)
    axes.set_yticks([0.0, 0.5, 1.0])
    look: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(shown)), [names[index] for index in shown], **(look if _longest(names) > UPRIGHT else {}))
    axes.get_xticklabels()[shown.index(truth)].set_fontweight("bold")
    axes.spines[["top", "right"]].set_visible(False)


def shown_classes(mean: Tensor, truth: int) -> list[int]:
    """The classes that have a box: all in their order, or of many the most probable ones, the true one among them.

    Args:
        mean: (C,) probabilities.
        truth: the true class.

    Example:
        >>> import torch
        >>> shown_classes(torch.tensor([0.1, 0.9]), truth=0)
        [0, 1]
        >>> shown_classes(torch.arange(20.0), truth=3)
        [19, 18, 17, 16, 15, 3]
    """
    if len(mean) <= MANY:
        return list(range(len(mean)))
    likely: list[int] = mean.argsort(stable=True, descending=True)[:SHOWN].tolist()
    return likely if truth in likely else [*likely[:-1], truth]


def class_names(classes: Sequence[str]) -> list[str]:
    """Names that fit below a box."""
    return [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in classes]


def label_height(classes: Sequence[str]) -> float:
    """Inches that the names of the classes take below a panel."""
    longest = _longest(class_names(classes))
    return 0.15 + (0.04 * longest if longest > UPRIGHT else 0.0)


def _longest(names: Sequence[str]) -> int:
    return max(map(len, names))
