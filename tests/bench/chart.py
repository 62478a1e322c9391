"""A run as a bar chart in SVG: what each kind of statement costs all servers, with and without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.bench import kinds
from tests.bench.kinds import KINDS, MANY
from tests.bench.results import Result
from tests.bench.tables import Figured, figure

_LEFT, _WIDTH, _BAR, _GAP, _TOP = 400, 520, 9, 8, 66
_COLOURS = {"sqlcache": "#d9603b", "memcached": "#e8b04a", "MariaDB": "#5b8db8"}
_DIRECT = "#a9c3da"
_STYLE = "font: 12px sans-serif; fill: #333"
_MOST = 8.0  # of d; longer bars are cut, and say how long they are


class Bars(NamedTuple):
    """A kind of statement: what each server takes for it through sqlcache, and MariaDB directly,
    as parts of d."""

    name: str
    through: Sequence[float]
    direct: float


def bars(result: Result) -> list[Bars]:
    """Of all kinds of statements that were measured with 32 connections."""
    figured = Figured(result)
    d = result.find("statements", *kinds.D)
    found = []
    for kind in KINDS:
        strict = kinds.UNPLANNED if kinds.UNPLANNED in kind.ways else kinds.STRICT
        through, direct = (figured.row(kind, way, MANY) for way in (strict, kinds.DIRECT))
        if through is not None and direct is not None and d is not None:
            by_d = figure("mariadb_us")
            parts = [through.ratio(figure(f"{name.lower()}_us"), d, by_d) for name in _COLOURS]
            found.append(Bars(kind.name, parts, direct.ratio(by_d, d, by_d)))
    return found


def svg(found: Sequence[Bars], title: str) -> str:
    """The chart."""
    height = _TOP + len(found) * (2 * _BAR + _GAP) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 50}"'
        f' height="{height}" style="{_STYLE}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" style="font-weight: bold">{escape(title)}</text>',
        *_legend(),
        *_scale(height),
    ]
    for at, each in enumerate(found):
        lines += _pair(each, _TOP + at * (2 * _BAR + _GAP))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _legend() -> list[str]:
    lines, x = [], 10
    for name, colour in {**_COLOURS, "MariaDB directly": _DIRECT}.items():
        lines.append(_rect(x, 32, 10, colour))
        lines.append(f'<text x="{x + 15}" y="41">{escape(name)}</text>')
        x += 40 + 7 * len(name)
    return lines


def _scale(height: int) -> list[str]:
    """A line for each d."""
    lines = []
    for at in range(int(_MOST) + 1):
        x = _LEFT + at * _WIDTH / _MOST
        lines.append(f'<line x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{height}" stroke="#ddd"/>')
        lines.append(f'<text x="{x}" y="{_TOP - 8}" text-anchor="middle">{at} d</text>')
    return lines


def _pair(each: Bars, y: float) -> list[str]:
    lines = [f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(each.name)}</text>']
    x = float(_LEFT)
    for part, colour in zip(each.through, _COLOURS.values(), strict=True):
        width = min(part * _WIDTH / _MOST, _LEFT + _WIDTH - x)
        lines.append(_rect(x, y, width, colour))
        x += width
    lines.append(_rect(_LEFT, y + _BAR, min(each.direct / _MOST, 1) * _WIDTH, _DIRECT))
    for at, length in ((y, sum(each.through)), (y + _BAR, each.direct)):
        if length > _MOST:
            lines.append(f'<text x="{_LEFT + _WIDTH + 6}" y="{at + 9}">{length:.0f} d</text>')
    return lines


def _rect(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>'
