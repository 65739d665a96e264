"""The one writer of SVG: a scene as a file of one theme, or inline for a page that has both.

Elements carry classes and no colours, so that the body is the same in all; only the style differs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from workbench.render import html
from workbench.render.chart.scene import (
    PALETTE,
    XY,
    Anchor,
    Bar,
    Box,
    Item,
    Label,
    Marker,
    Polyline,
    Scene,
    Sign,
    Stroke,
    VariantItems,
    fitted,
)

HEAD = 46.0  # of a file, for its title
TITLE, SUBTITLE = 16.0, 12.0
EDGE = 8.0
CLASSES, COLOUR = re.compile('class="([^"]*)"'), re.compile(r"\b[fs]-(\w+)")
EDGES = ((1, 1), (-1, 1), (-1, -1))  # of a diamond, from its top
LOOKS = {
    "text": "font-family:system-ui,sans-serif",
    ".b": "font-weight:600",
    ".h": "paint-order:stroke;stroke-width:3px;stroke-linejoin:round",
}


def escape(text: str) -> str:
    return html.escape(re.sub(r"[\t\r\n]", " ", text))


def _number(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _place(at: XY) -> str:
    return f"{_number(at[0])} {_number(at[1])}"


def _box(box: Box) -> str:
    corner = f'x="{_number(box.x0)}" y="{_number(box.y0)}"'
    return f'{corner} width="{_number(box.width)}" height="{_number(box.height)}"'


def _stroke(stroke: Stroke) -> str:
    dash = " ".join(_number(part) for part in stroke.dash)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'class="s-{stroke.colour}" stroke-width="{_number(stroke.width)}"{dashes}'


def _written(items: Iterable[Item], *, live: bool) -> str:
    """``live``: with what a page's script and a screen reader need."""
    return "".join(_item(item, live) for item in items)


def _item(item: Item, live: bool) -> str:
    match item:
        case Polyline():
            path = "M" + "L".join(map(_place, item.points))
            return f'<path d="{path}" fill="none" {_stroke(item.stroke)}/>\n'
        case Bar():
            part = f' data-part="{escape(item.part)}"' if live and item.part else ""
            return f'<rect class="f-{item.fill}" {_box(item.box)}{part}/>\n'
        case Sign():
            return _sign(item)
        case Label():
            return _label(item)
        case VariantItems():
            inside = _written(item.items, live=live)
            return _group(item, inside) if live else inside


def _group(group: VariantItems, inside: str) -> str:
    name = f'data-variant="{escape(group.variant)}"'
    if not group.areas:
        return f'<g class="of" {name} aria-hidden="true">\n{inside}</g>\n'
    rings = "".join(f'<rect class="ring" {_box(area)} rx="4"/>\n' for area in group.areas)
    return (
        f'<g class="choice {group.kind}" {name} tabindex="0" role="button" '
        f'aria-pressed="false" aria-label="{escape(group.words)}">\n{rings}{inside}</g>\n'
    )


def _sign(sign: Sign) -> str:
    (x, y), half = sign.at, sign.size / 2
    fill = sign.colour if sign.filled else "paper"
    look = f'class="f-{fill} s-{sign.colour}" stroke-width="1.6"'
    if sign.shape == Marker.CIRCLE:
        return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(half)}" {look}/>\n'
    if sign.shape == Marker.SQUARE:
        return f"<rect {_box(Box(x - half, y - half, x + half, y + half))} {look}/>\n"
    edge = "".join(f"l{_number(a * half)} {_number(b * half)}" for a, b in EDGES)
    return f'<path d="M{_place((x, y - half))}{edge}z" {look}/>\n'


def _label(label: Label) -> str:
    (x, y), size = label.at, label.size
    classes = f"f-{label.colour}" + " b" * label.bold + " h s-paper" * label.halo
    place = f'x="{_number(x)}" y="{_number(y)}"'
    if label.turn:
        place = f'transform="translate({_place((x, y))})rotate({_number(label.turn)})"'
    side = f' text-anchor="{label.anchor}"' if label.anchor != Anchor.START else ""
    text = escape(label.text)
    return f'<text class="{classes}" {place} font-size="{_number(size)}"{side}>{text}</text>\n'


def files(scene: Scene) -> tuple[str, str]:
    """A file for a light page and one for a dark page, without backgrounds of their own."""
    content = _written((*_head(scene), *scene.items), live=False)
    used = {name for classes in CLASSES.findall(content) for name in COLOUR.findall(classes)}
    shades = {name: both for name, both in PALETTE.items() if name in used}
    light = _file(scene, content, {name: both.light for name, both in shades.items()})
    return light, _file(scene, content, {name: both.dark for name, both in shades.items()})


def _file(scene: Scene, content: str, shades: Mapping[str, str]) -> str:
    wide, high = _number(scene.width), _number(scene.height + HEAD)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
        f'viewBox="0 {_number(-HEAD)} {wide} {high}" role="img" '
        f'aria-labelledby="{scene.name}-title {scene.name}-text">\n'
        f'<title id="{scene.name}-title">{escape(f"{scene.title} {scene.subtitle}")}</title>\n'
        f'<desc id="{scene.name}-text">{escape(f"{scene.alt} {scene.caption}".strip())}</desc>\n'
        f"<style>{_style(shades)}</style>\n"
        f"{content}</svg>\n"
    )


def _head(scene: Scene) -> tuple[Label, ...]:
    room = scene.width - 2 * EDGE
    title = fitted(scene.title, room, TITLE, bold=True)
    return (
        Label((EDGE, TITLE + 3 - HEAD), title, TITLE, bold=True),
        Label((EDGE, TITLE + 21 - HEAD), fitted(scene.subtitle, room, SUBTITLE), SUBTITLE, "muted"),
    )


def inline(scene: Scene) -> str:
    """For a page that has ``page_style``: every group with areas is a button."""
    wide, high = _number(scene.width), _number(scene.height)
    return (
        f'<svg class="chart" data-chart="{escape(scene.name)}" viewBox="0 0 {wide} {high}" '
        f'width="{wide}" height="{high}" role="group" aria-label="{escape(scene.alt)}">\n'
        f"{_written(scene.items, live=True)}</svg>\n"
    )


def page_style() -> str:
    """CSS that gives inline charts their colours in the page's theme (its ``color-scheme``)."""
    shades = {
        name: f"light-dark({both.light},{both.dark})" if both.light != both.dark else both.light
        for name, both in PALETTE.items()
    }
    return f"{_style(shades, '.chart ')}.chart .ring{{fill:transparent}}"


def _style(shades: Mapping[str, str], scope: str = "") -> str:
    rules = dict(LOOKS)
    for name, shade in shades.items():
        rules[f".f-{name}"] = f"fill:{shade}"
        rules[f".s-{name}"] = f"stroke:{shade}"
    return "".join(f"{scope}{selector}{{{rule}}}" for selector, rule in rules.items())
