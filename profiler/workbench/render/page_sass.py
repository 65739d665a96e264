"""The SASS behind a page's hot lines, in a form that a page carries cheaply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.derive.sass.listing import Costed, Listing
from workbench.derive.sums import added
from workbench.render.page_sources import DIGITS, Files
from workbench.render.plain import harmless

HOT = 0.01  # of all samples: a line with less shows none
MOST = 12  # instructions of a line, those with the most samples


def sass(listings: Mapping[str, Listing], files: Files) -> dict[str, dict[str, Any]]:
    """Variant to file to line to its instructions; lines count from 1."""
    found: dict[str, dict[str, Any]] = {}
    for variant, listed in listings.items():
        keys = dict(files.of(variant))
        for (file, line), code in listed.by_line.items():
            if line > 0 and file in keys and added(one.share or 0.0 for one in code) >= HOT:
                lines = found.setdefault(variant, {}).setdefault(keys[file], {})
                lines[str(line)] = [len(code), [_packed(one) for one in _shown(code)]]
    return found


def _shown(code: Sequence[Costed]) -> list[Costed]:
    """In the order of their addresses."""
    ranked = sorted(code, key=lambda one: (-(one.share or 0.0), one.launch, one.address))
    return sorted(ranked[:MOST], key=lambda one: (one.launch, one.address))


def _packed(one: Costed) -> list[Any]:
    """Address, text, share of all samples, and how often warps executed it."""
    share = None if one.share is None else round(one.share, DIGITS)
    executed = None if one.executed is None else int(one.executed)
    return [one.address, harmless(one.sass), share, executed]
