"""The page's stall bars: shares of warp state samples, in the colours of the stall chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from workbench.derive.figures import ISSUING, stall_label
from workbench.judge.rows import Ablation, Row
from workbench.render.canvas import DARK, LIGHT
from workbench.render.page_roofline import kind
from workbench.render.stall_chart import OTHER, SHOWN, fills, on, parts, weights
from workbench.render.tables import percent

SHOWN_NARROW = 0.12  # smaller parts have no room for their number on a phone


def reasons(ablation: Ablation) -> list[dict[str, str]]:
    """Key, words and colours of every part that a bar or a strip may have, largest first."""
    found = fills(weights(ablation.everything))
    return [
        {
            "key": key,
            "label": OTHER if key == OTHER else stall_label(key),
            "light": fill,
            "dark": DARK.faint if fill == LIGHT.faint else fill,
            "ink": "" if key == ISSUING else on(fill),
        }
        for key, fill in found.items()
    ]


def bars(ablation: Ablation) -> list[dict[str, Any]]:
    """One bar a variant that has samples; widths and places are percent of the bar."""
    rows = [row for row in ablation.everything if row.stalls]
    names = [entry["key"] for entry in reasons(ablation)]
    return [
        {
            "variant": row.variant,
            "label": row.label,
            "kind": kind(row),
            "parts": _parts(row, names),
            "words": _spoken(row),
        }
        for row in rows
    ]


def _parts(row: Row, names: list[str]) -> list[dict[str, Any]]:
    total = sum(row.stalls.values())
    shares = [(name, share / total) for name, share in parts(row, names)]
    return stacked(shares, lambda share: f"{100 * share:.0f} %")


def stacked(
    shares: Iterable[tuple[str, float]], text: Callable[[float], str]
) -> list[dict[str, Any]]:
    """Parts of a bar side by side, each with its text where there is room for it."""
    found, start = [], 0.0
    for name, wide in shares:
        if wide > 0:
            room = "wide" if wide >= SHOWN_NARROW else "some" if wide >= SHOWN else ""
            found.append(
                {
                    "key": name,
                    "x": round(100 * start, 3),
                    "width": round(100 * wide, 3),
                    "middle": round(100 * (start + wide / 2), 3),
                    "text": text(wide) if room else "",
                    "room": room,
                }
            )
        start += wide
    return found


def _spoken(row: Row) -> str:
    most = [f"{stall_label(reason)} {percent(share)}" for reason, share in row.stalls.items()][:6]
    return ", ".join(most)
