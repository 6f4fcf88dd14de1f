"""What is wrong with a page as it is laid out: parts that overlap, or that are cut."""

from __future__ import annotations

from playwright.sync_api import Page

#: Pixels by which boxes may touch: rounding, and the room around letters.
SLACK = 1.5

_NAME = "(e) => `${e.tagName}.${e.getAttribute('class') ?? ''} ${(e.textContent ?? '').trim().slice(0, 40)}`"
_OVERLAPS = f"""([selector, within, slack]) => {{
  const name = {_NAME}, found = [];
  for (const group of within ? document.querySelectorAll(within) : [document]) {{
    const boxes = Array.from(group.querySelectorAll(selector), (e) => [e, e.getBoundingClientRect()])
      .filter(([, box]) => box.width > 0 && box.height > 0);
    boxes.forEach(([one, a], place) => boxes.slice(place + 1).forEach(([other, b]) => {{
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > slack && down > slack && !one.contains(other)) found.push(`${{name(one)}} | ${{name(other)}}`);
    }}));
  }}
  return found;
}}"""
_CUT = f"""([selector, slack]) => {{
  const name = {_NAME}, found = [];
  const scrolls = (e) => e && e !== document.documentElement
    && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  for (const e of document.querySelectorAll(selector)) {{
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height || scrolls(e)) continue;
    const inner = e.closest('.canvas, figure, article, section')?.getBoundingClientRect() ?? box;
    const right = Math.min(document.documentElement.clientWidth, inner.right);
    const left = Math.max(0, inner.left);
    if (box.left < left - slack || box.right > right + slack) found.push(name(e));
    if (box.bottom > inner.bottom + slack && e.closest('.canvas')) found.push(name(e));
  }}
  return found;
}}"""


def overlapping(page: Page, selector: str, within: str = "") -> list[str]:
    """Pairs of elements whose boxes overlap; only pairs in the same element of ``within``, if it is given."""
    return list(page.evaluate(_OVERLAPS, [selector, within, SLACK]))


def cut(page: Page, selector: str) -> list[str]:
    """Elements that reach beyond the window or beyond what they belong to, unless one can scroll to them."""
    return list(page.evaluate(_CUT, [selector, SLACK]))


def too_wide(page: Page) -> bool:
    """Whether the whole page scrolls sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
