"""Anyone's report on a terminal: its launches, and the figures of one, as valid Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.derive.figures import Figure, figure_label, stall_label
from workbench.derive.matching import Group, Matching, PairGroup
from workbench.judge.bottlenecks import Bottleneck
from workbench.ncu.report import Launch, Report
from workbench.render.compare import SHOWN
from workbench.render.plain import printable
from workbench.render.tables import factor, markdown_table, number, percent
from workbench.render.terminal import bottleneck_line
from workbench.words import ABSENT, NONE

KERNEL_WIDTH = 60
INDICES = 6


@dataclass(frozen=True)
class Details:
    """One launch read whole. ``has_rules`` is false where ncu ran without its rules."""

    launch: Launch
    figures: dict[str, Figure]
    stalls: dict[str, float]
    limiters: tuple[str, ...]
    bottlenecks: tuple[Bottleneck, ...]
    has_rules: bool


def kernel(launch: Launch, width: int = KERNEL_WIDTH) -> str:
    """The signature where it is short, else the function's name."""
    text = launch.signature if len(launch.signature) <= width else launch.kernel
    shown = printable(text)
    shown = shown if len(shown) <= width else shown[: width - 1] + "…"
    return shown if launch.kind == "kernel" else f"{shown} ({launch.kind})"


def extent(dimensions: tuple[int, ...] | None) -> str:
    """``256x8``: (x, y, z) without the ones at its end."""
    if dimensions is None:
        return ABSENT
    kept = list(dimensions)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return "x".join(map(str, kept))


def about(report: Report) -> str:
    """One line: file, GPU, ncu, options, number of launches."""
    gpu = ", ".join(report.gpus) or f"GPU {ABSENT}"
    capability = f" (compute capability {report.compute_capability})" * bool(
        report.compute_capability
    )
    options = " ".join(f"{k} {v}" for k, v in report.options.items())
    count = len(report.launches)
    return printable(
        f"{report.name}: {gpu}{capability}, ncu {report.ncu or ABSENT}"
        f"{', ' + options if options else ''}; {count} launch{'es' * (count != 1)}"
    )


def indices(launches: Sequence[Launch]) -> str:
    shown = ", ".join(str(x.index) for x in launches[:INDICES])
    return shown + (f", ... ({len(launches)})" if len(launches) > INDICES else "")


def group_table(groups: Sequence[Group]) -> str:
    """One row per kernel and launch shape; ``time`` is of all its launches."""
    whole = [group.microseconds for group in groups]
    total = sum(t for t in whole if t is not None) if None not in whole else None
    rows = []
    for group in groups:
        time = group.microseconds
        share = percent(time / total) if time is not None and total else ABSENT
        typical = group.typical
        rows.append(
            [
                indices(group.launches),
                kernel(typical),
                extent(typical.grid),
                extent(typical.block),
                number(typical.microseconds),
                number(time),
                share,
            ]
        )
    header = ["launch", "kernel", "grid", "block", "median (µs)", "time (µs)", "share"]
    return markdown_table(header, rows, "llllrrr")


def details(found: Details) -> str:
    """Figures with their metrics, stalls and bottlenecks of one launch."""
    launch = found.launch
    parts = [f"## launch {launch.index}: {kernel(launch, 200)}"]
    if launch.signature not in (launch.kernel, kernel(launch, 200)):
        parts.append(f"signature: {printable(launch.signature)}")
    rows = []
    for key in SHOWN:
        figure = found.figures.get(key)
        label, unit = figure_label(key)
        rows.append(
            [
                label,
                number(figure.value if figure else None),
                unit if figure else "",
                figure.metric if figure else "",
            ]
        )
    parts.append(markdown_table(["figure", "value", "unit", "ncu metric"], rows, "lrll"))
    parts.append(f"occupancy limited by: {', '.join(found.limiters) or ABSENT}")
    stalls = [(r, s) for r, s in found.stalls.items() if r != "selected"][:5]
    if stalls:
        table = [[stall_label(r), percent(s)] for r, s in stalls]
        parts.append(markdown_table(["stall reason", "share of samples"], table, "lr"))
    else:
        parts.append(f"stall samples: {ABSENT}")
    parts.append(f"Top bottlenecks:\n\n{bottleneck_lines(found)}")
    return "\n\n".join(parts)


def bottleneck_lines(found: Details) -> str:
    """Numbered; without rules the top stalls stand in, which is said."""
    lines = [f"{i}. {printable(bottleneck_line(b))}" for i, b in enumerate(found.bottlenecks, 1)]
    if not found.has_rules:
        lines.insert(0, f"ncu's rules: {ABSENT}{'; the top stalls instead:' if lines else ''}\n")
    return "\n".join(lines) or "no rule advises a change"


def pair_table(found: Sequence[PairGroup]) -> str:
    rows = []
    for group in found:
        pair = group.typical
        was, came = pair.before.microseconds, pair.after.microseconds
        names = [kernel(pair.before), kernel(pair.after)]
        shapes = [f"{extent(x.grid)} / {extent(x.block)}" for x in (pair.before, pair.after)]
        launches = [
            indices([p.before for p in group.pairs]),
            indices([p.after for p in group.pairs]),
        ]
        rows.append(
            [
                " → ".join(launches),
                " → ".join(dict.fromkeys(names)),
                " → ".join(dict.fromkeys(shapes)),
                number(was),
                number(came),
                factor(came / was) if was and came is not None else NONE,
                pair.how,
            ]
        )
    header = [
        "launch",
        "kernel",
        "grid / block",
        "before (µs)",
        "after (µs)",
        "factor",
        "matched by",
    ]
    return markdown_table(header, rows, "lllrrrl")


def unmatched(found: Matching, names: tuple[str, str]) -> list[str]:
    """Sentences naming the launches that only one report has."""
    said = []
    for name, launches in zip(names, (found.only_before, found.only_after), strict=True):
        kinds: dict[str, list[Launch]] = {}
        for launch in launches:
            text = f"{kernel(launch)} ({extent(launch.grid)} / {extent(launch.block)})"
            kinds.setdefault(text, []).append(launch)
        said += [
            f"only in {printable(name)}: {text}, launch {indices(members)}"
            for text, members in kinds.items()
        ]
    return said


def launch_json(found: Launch) -> dict[str, Any]:
    return {
        "launch": found.index,
        "kernel": found.kernel,
        "signature": found.signature,
        "kind": found.kind,
        "grid": found.grid,
        "block": found.block,
        "microseconds": found.microseconds,
        "sm_clock_ghz": found.sm_clock,
        "gpu": found.gpu or None,
    }


def report_json(found: Report) -> dict[str, Any]:
    return {
        "report": found.name,
        "gpus": list(found.gpus),
        "compute_capability": found.compute_capability or None,
        "ncu": found.ncu or None,
        "ncu_options": dict(found.options),
    }
