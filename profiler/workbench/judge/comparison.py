"""Set two captures side by side: how the ratio of their durations multiplies out, and what changed.
Pure.

``compare`` needs nothing but captures, so that it serves any two of them, in a ladder or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workbench.derive.factors import (
    LargestChanges,
    SpeedupFactors,
    duration_parts,
    largest_changes,
    speedup_factors,
)
from workbench.derive.figures import Figure, StallTime, compare_times, stall_times
from workbench.derive.matching import MATCHED, LaunchPair, Matching
from workbench.judge.findings import Finding, finding
from workbench.ncu.capture import Capture
from workbench.ncu.report_file import OPTIONS, Report
from workbench.words import ABSENT, CLOCK_TOLERANCE


@dataclass(frozen=True)
class Comparison:
    """A variant against another; None or empty is not collected. ``stall_microseconds`` are under
    ncu, the largest change first.
    """

    before: str
    after: str
    decomposition: SpeedupFactors | None
    stall_microseconds: tuple[StallTime, ...]
    largest_changes: LargestChanges


def compare(
    before: Capture,
    after: Capture,
    names: tuple[str, str],
    computed: tuple[Mapping[str, Figure], Mapping[str, Figure]],
) -> Comparison:
    """Compare two captures; ``names`` are what the two are called, ``computed`` their figures."""
    parts = duration_parts(before.metrics), duration_parts(after.metrics)
    factors = speedup_factors(parts[0], parts[1]) if parts[0] and parts[1] else None
    return Comparison(
        before=names[0],
        after=names[1],
        decomposition=factors,
        stall_microseconds=tuple(
            compare_times(stall_times(before.metrics), stall_times(after.metrics))
        ),
        largest_changes=largest_changes(*computed, factors),
    )


def warnings(before: Report, after: Report, matching: Matching) -> list[Finding]:
    """Warn where two reports differ: GPU, ncu, its options, SM clocks, names of kernels."""
    return [*_reports(before, after), *_pair_clocks(matching), *_renamed(matching)]


def _reports(before: Report, after: Report) -> Iterator[Finding]:
    for report in (before, after):
        if len(report.gpus) > 1:
            message = f"{report.name} holds launches of several GPUs: {', '.join(report.gpus)}"
            gpus = tuple(report.gpus)
            yield finding("reports.several_gpus", message, report=report.name, gpus=gpus)
    facts = [
        ("GPU", ", ".join(before.gpus), ", ".join(after.gpus)),
        ("ncu version", before.ncu, after.ncu),
        *(
            (f"ncu {o}", before.ncu_options.get(o, ""), after.ncu_options.get(o, ""))
            for o in OPTIONS
        ),
    ]
    for what, old, new in facts:
        if old != new:
            message = f"the reports differ in {what}: {old or ABSENT} and {new or ABSENT}"
            yield finding("reports.differ", message, field=what, before=old, after=new)


def _pair_clocks(matching: Matching) -> Iterator[Finding]:
    """Warn about the pair whose clocks are furthest apart."""
    apart = {pair: ratio for pair in matching.pairs if (ratio := _clock_ratio(pair))}
    pair = max(apart, key=apart.__getitem__, default=None)
    if pair is not None and apart[pair] > 1 + CLOCK_TOLERANCE:
        clocks = [pair.before.sm_clock_ghz or 0.0, pair.after.sm_clock_ghz or 0.0]
        yield finding(
            "reports.clocks",
            f"SM clocks are up to {100 * (apart[pair] - 1):.1f} % apart ({pair.before.kernel}: "
            f"{clocks[0]:.3f} and {clocks[1]:.3f} GHz): compare cycles too",
            ratio=apart[pair],
            kernel=pair.before.kernel,
            before_ghz=pair.before.sm_clock_ghz,
            after_ghz=pair.after.sm_clock_ghz,
        )


def _clock_ratio(pair: LaunchPair) -> float | None:
    """The faster clock over the slower; None where one was not collected."""
    old, new = pair.before.sm_clock_ghz, pair.after.sm_clock_ghz
    return max(old, new) / min(old, new) if old and new else None


def _renamed(matching: Matching) -> Iterator[Finding]:
    pair = next((p for p in matching.pairs if p.before.kernel != p.after.kernel), None)
    if pair is not None:
        old, new = pair.before.kernel, pair.after.kernel
        message = (
            f"kernels of different names are compared, since they are {MATCHED[pair.how]}: {old} "
            f"and {new}"
        )
        how = pair.how
        yield finding("reports.other_names", message, matched_by=how, before=old, after=new)
