"""``bisect``: the first bad commit."""

from __future__ import annotations

from workbench.app.bisect import Bisected


def lines(result: Bisected) -> list[str]:
    bad = result.first_bad
    what = "first known bad" if result.skipped else "first bad"
    return [f"{what}: {bad.short} {bad.subject}", f"{result.tested} commits were tested"]
