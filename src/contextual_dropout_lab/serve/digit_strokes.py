"""A digit of each kind as strokes in a unit square, for visitors who would rather look on than draw."""

from __future__ import annotations

import math

__all__ = ["DIGITS"]

Points = list[tuple[float, float]]


def _arc(x: float, y: float, across: float, down: float, start: float, end: float) -> Points:
    """An elliptic arc about (x, y), from one angle to another in degrees, clockwise from three o'clock."""
    steps = max(8, round(abs(end - start) / 12))
    angles = (math.radians(start + (end - start) * step / steps) for step in range(steps + 1))
    return [(round(x + across * math.cos(a), 3), round(y + down * math.sin(a), 3)) for a in angles]


_ANGLES = [math.tau * step / 48 for step in range(49)]

DIGITS: dict[str, list[Points]] = {
    "0": [_arc(0.5, 0.5, 0.2, 0.32, -90, 270)],
    "1": [[(0.38, 0.3), (0.52, 0.18), (0.52, 0.82)]],
    "2": [[*_arc(0.5, 0.36, 0.19, 0.18, -170, 30), (0.32, 0.8), (0.72, 0.8)]],
    "3": [[*_arc(0.48, 0.34, 0.18, 0.16, -150, 90), *_arc(0.48, 0.66, 0.2, 0.17, -90, 150)]],
    "4": [[(0.56, 0.18), (0.28, 0.58), (0.74, 0.58)], [(0.6, 0.38), (0.6, 0.84)]],
    "5": [[(0.7, 0.18), (0.36, 0.18), (0.34, 0.46), *_arc(0.48, 0.62, 0.21, 0.2, -120, 140)]],
    "6": [[(0.6, 0.16), (0.42, 0.36), (0.34, 0.58), *_arc(0.5, 0.66, 0.17, 0.16, 180, 540)]],
    "7": [[(0.28, 0.2), (0.72, 0.2), (0.46, 0.82)], [(0.36, 0.52), (0.66, 0.52)]],
    "8": [[(round(0.5 + 0.18 * math.sin(2 * a), 3), round(0.5 - 0.32 * math.cos(a), 3)) for a in _ANGLES]],
    "9": [[*_arc(0.5, 0.35, 0.17, 0.17, -10, -370), (0.66, 0.62), (0.58, 0.84)]],
}
