"""Two captures side by side: how the ratio of their durations multiplies out, and what changed;
and what differs between two commits in builds and counters. Pure.

``compare`` needs nothing but captures, so that it serves any two of them, in a ladder or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from workbench.derive.factors import SpeedupFactors, duration_parts, speedup_factors
from workbench.derive.figures import (
    Figure,
    StallTime,
    compare_times,
    figure_label,
    figures,
    stall_times,
)
from workbench.derive.largest_changes import (
    CERTAIN,
    LargestChanges,
    counted,
    largest_changes,
    surprise,
)
from workbench.evidence.records import BuiltKernel, CaptureIndex
from workbench.ncu.capture import Capture
from workbench.ncu.catalog import catalog
from workbench.study.config import CommitGate


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
    known: tuple[Mapping[str, Figure], Mapping[str, Figure]] | None = None,
) -> Comparison:
    """``names`` are what the two are called; ``known`` their figures, where already computed."""
    old, new = known or (figures(before.metrics), figures(after.metrics))
    parts = duration_parts(before.metrics), duration_parts(after.metrics)
    factors = speedup_factors(parts[0], parts[1], names) if parts[0] and parts[1] else None
    return Comparison(
        before=names[0],
        after=names[1],
        decomposition=factors,
        stall_microseconds=tuple(
            compare_times(stall_times(before.metrics), stall_times(after.metrics))
        ),
        largest_changes=largest_changes(old, new, factors),
    )


# What repeats from run to run: instructions, sectors, conflicts, bytes. All are amounts: of a ratio
# such as sectors a request nobody knows which way is better.
REQUESTS, SECTORS_EACH = "global_load_requests", "sectors_per_request"
REPEATING = (
    "warp_instructions",
    REQUESTS,
    "shared_conflicts",
    "local_loads",
    "dram_read",
    "dram_write",
)
REGISTERS = "registers"
SIZES = (REGISTERS, "shared_bytes", "stack_bytes")
SPILLS, WARNINGS, CODE, HOST = "spill_bytes", "warnings", "machine_code", "host_code"
COMPILES, SECTORS = "compiles", "global_load_sectors"


@dataclass(frozen=True)
class AtCommit:
    """A variant at one commit.

    ``fingerprint`` is of its sources, ``plain`` of these without comments, ``host`` of what its
    Python means, ``launches`` of the same with machine code for the files that it is of, ``method``
    of the study's code. ``kernels`` with their macros are what was compiled; None where that was
    not needed. ``error`` is the compiler's, ``lacks`` why it was not compiled on this machine,
    ``wrong`` what a check found. ``figures`` are of the capture that ``index`` names; empty and
    None are not collected. ``without_report``: the recorded capture has tables
    alone, which anyone can write: no figures are taken from it.
    """

    fingerprint: str
    plain: str
    host: str
    method: str
    launches: str = ""
    kernels: tuple[tuple[BuiltKernel, str], ...] | None = None
    warnings: tuple[str, ...] = ()
    error: str = ""
    lacks: str = ""
    wrong: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    index: CaptureIndex | None = None
    without_report: bool = False


@dataclass(frozen=True)
class Difference:
    """``what`` is an id, or a figure's; ``worse`` is None where more is neither good nor bad."""

    tier: int
    what: str
    before: float | str
    after: float | str
    worse: bool | None = None
    kernel: str = ""


def same_code(before: AtCommit, after: AtCommit) -> bool | None:
    """Whether the GPU runs the same; None where the machine code of a side is not known."""
    if before.kernels is None or after.kernels is None:
        return True if before.fingerprint == after.fingerprint else None
    codes = [[k.code for k, _ in side.kernels or () if k.code] for side in (before, after)]
    if any(side.kernels and not known for side, known in zip((before, after), codes, strict=True)):
        return None
    return sorted(codes[0]) == sorted(codes[1])


def is_same(before: AtCommit, after: AtCommit) -> bool:
    """Whether nothing of what runs is another: neither kernels nor what launches them."""
    if before.fingerprint == after.fingerprint:
        return same_code(before, after) is not False
    if before.plain == after.plain:
        return True
    return bool(same_code(before, after)) and same_host(before, after)


def same_host(before: AtCommit, after: AtCommit) -> bool:
    """Whether the same is launched in the same way, whatever the kernels' files are called."""
    known = before.launches and before.launches == after.launches
    return bool(known) or before.host == after.host


def compiled(before: AtCommit, after: AtCommit) -> Iterator[Difference]:
    """Tier 0."""
    if after.error != before.error and bool(after.error) != bool(before.error):
        yield Difference(
            0, COMPILES, _yes(not before.error), _yes(not after.error), bool(after.error)
        )
    if before.kernels is not None and after.kernels is not None and not after.error:
        for old, new in _paired(before.kernels, after.kernels):
            yield from _kernel(old, new)
        if len(before.warnings) != len(after.warnings):
            more = len(after.warnings) > len(before.warnings)
            yield Difference(0, WARNINGS, len(before.warnings), len(after.warnings), more)
    if not (same_host(before, after) or before.error or after.error):
        yield Difference(0, HOST, "", "changed")


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _kernel(old: BuiltKernel | None, new: BuiltKernel | None) -> Iterator[Difference]:
    if old is None or new is None:
        known = old or new
        name = known.kernel if known else ""
        yield Difference(0, "kernel", _yes(old is not None), _yes(new is not None), None, name)
        return
    name = new.kernel
    for size in SIZES:
        one, other = getattr(old, size), getattr(new, size)
        if one != other:
            yield Difference(0, size, one, other, other > one, name)
    spilled = [k.spill_store_bytes + k.spill_load_bytes for k in (old, new)]
    if spilled[0] != spilled[1]:
        yield Difference(0, SPILLS, spilled[0], spilled[1], spilled[1] > spilled[0], name)
    if old.code != new.code:
        yield Difference(0, CODE, old.code[:12], new.code[:12], None, name)


def _paired(
    before: Sequence[tuple[BuiltKernel, str]], after: Sequence[tuple[BuiltKernel, str]]
) -> Iterator[tuple[BuiltKernel | None, BuiltKernel | None]]:
    """By name and macros, then in order; kernels that are not launched are left out. A kernel that
    gets other macros is no other kernel.
    """
    old = [one for one in before if one[0].code or not one[0].source]
    new = [one for one in after if one[0].code or not one[0].source]
    old, new = old or list(before), new or list(after)
    left = list(old)
    alone: list[tuple[BuiltKernel, str]] = []
    for one in new:
        same = (o for o in left if (o[0].kernel, o[1]) == (one[0].kernel, one[1]))
        partner = next(same, None)
        if partner is None:
            alone.append(one)
        else:
            left.remove(partner)
            yield partner[0], one[0]
    for was, now in zip_longest(left, alone):
        yield was and was[0], now and now[0]


def counters(before: AtCommit, after: AtCommit, gate: CommitGate) -> Iterator[Difference]:
    """Tier 1: those that moved by more than their noise and the least that counts."""
    known = [_with_sectors(side.figures) for side in (before, after)]
    for name in REPEATING:
        if any(name not in figures for figures in known):
            continue
        old, new = counted(catalog()[name], *known)
        size = abs(new.value - old.value) / max(abs(old.value), 1e-12)
        if size < gate.counters or surprise(old, new) < CERTAIN:
            continue
        one, other = (figures[name] for figures in known)
        yield Difference(1, one.id, one.value, other.value, new.value > old.value)


def _with_sectors(figures: Mapping[str, Figure]) -> Mapping[str, Figure]:
    """Requests of loads as the sectors that they ask for, where both are known."""
    if REQUESTS not in figures or SECTORS_EACH not in figures:
        return figures
    one, each = figures[REQUESTS], figures[SECTORS_EACH]
    return {**figures, REQUESTS: replace(one, id=SECTORS, value=one.value * each.value)}


DIFFERENCES = {
    "time": "time, chained (µs)",
    "registers": "registers",
    "shared_bytes": "shared memory, bytes",
    "stack_bytes": "stack, bytes",
    "spill_bytes": "spills, bytes",
    "machine_code": "machine code",
    "host_code": "host code",
    "global_load_sectors": "Sectors of global loads",
}


def difference_label(what: str) -> str:
    """Of what is another at two commits."""
    return DIFFERENCES.get(what) or figure_label(what)[0]
