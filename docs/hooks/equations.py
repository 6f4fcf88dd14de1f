"""Equations as MathML, made when the site is built: no script and no font has to be fetched."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

#: What pymdownx.arithmatex leaves: ``\\(inline\\)`` in a span, ``\\[display\\]`` in a div.
EQUATION = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.DOTALL)

#: Where TeX leaves room and the converter does not: around "is distributed as", after a logarithm.
SPACING = {
    "<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>",
    "<mi>log</mi>": '<mi>log</mi><mspace width="0.167em" />',
}


def on_page_content(content: str, **_: Any) -> str:
    """Replace every equation of a page."""
    return EQUATION.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    element, latex = match.group(1), html.unescape(match.group(2))
    display = "block" if element == "div" else "inline"
    mathml = convert(latex.strip(), display=display)
    for converted, meant in SPACING.items():
        mathml = mathml.replace(converted, meant)
    return f'<{element} class="equation">{mathml}</{element}>'
