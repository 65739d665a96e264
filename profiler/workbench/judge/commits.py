"""Judge what a change did to a variant, by its records at two commits. Pure.

There are three tiers: 0, what the compiler made, without a GPU; 1, the counters of two captures
    against their noise; 2, chained times of the same sessions. The highest that has an answer gives
    the verdict. Changed rules of judging are a change of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import msgspec

from workbench.derive.factors import CERTAIN, counted, surprise
from workbench.derive.figures import Figure
from workbench.derive.speedup import Ratio
from workbench.evidence.records import BuiltKernel, CaptureIndex
from workbench.judge.findings import Finding, Value, finding
from workbench.judge.session_checks import Control
from workbench.ncu.catalog import TIME, catalog, figure_label
from workbench.ncu.command import counting
from workbench.study.config import CommitGate, Config
from workbench.study.files import CONFIG_FILE
from workbench.study.model import Study
from workbench.study.values import tolerance_at
from workbench.words import CLOCK_TOLERANCE, VIRTUAL_ROOT, Cause, Move

# Fields of a provenance by what a difference in them may be put down to.
FIELDS = {
    "nvrtc": Cause.COMPILER,
    **dict.fromkeys(("torch", "cudnn", "cuda_core", "packages"), Cause.LIBRARY),
    **dict.fromkeys(("gpu", "gpu_uuid", "driver"), Cause.HARDWARE),
}
NOT_THERE = "not installed"
# Packages of an environment that a kernel's time may depend on, and those that only compile it.
PACKAGES = re.compile(r"python$|torch|triton|numba|cupy|nvidia-|cuda-|flash|quack|tilelang|helion")
COMPILING_PACKAGES = re.compile(
    r"triton$|nvidia-(?:cuda-(?:nvrtc|nvcc|crt|cccl|runtime|nvdisasm)|nvvm|nvjitlink|ml-py)|cuda-"
)
# What repeats from run to run: instructions, sectors, conflicts, bytes. All are amounts: of a ratio
# such as sectors a request nobody knows which way is better.
REQUESTS = "global_load_requests"
SECTORS_EACH = "sectors_per_request"
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
SPILLS = "spill_bytes"
WARNINGS = "warnings"
MACHINE_CODE = "machine_code"
HOST = "host_code"
COMPILES = "compiles"
SECTORS = "global_load_sectors"


@dataclass(frozen=True)
class AtCommit:
    """A variant at one commit.

    ``fingerprint`` is of its sources, ``plain`` of these without comments, ``host`` of what its
    Python means, ``launches`` of the same with machine code for the files that it is of, ``method``
    of the study's code. ``kernels`` with their macros are what was compiled; None where that was
    not needed. ``error`` is the compiler's, ``lacks`` why it was not compiled on this machine,
    ``wrong`` what a check found. ``figures`` are of the capture that ``index`` names; empty and
    None are not collected. ``without_report``: the recorded capture has tables
    alone, which anyone can write: no figures are taken from it. ``packages`` are versions by name
    in the environment whose workers built it; None where both have the same.
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
    packages: Mapping[str, str] | None = None


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
        return True if same_sources(before, after) else None
    codes = [[k.code for k, _ in side.kernels or () if k.code] for side in (before, after)]
    if any(
        side.kernels and not has_code for side, has_code in zip((before, after), codes, strict=True)
    ):
        return None
    return sorted(codes[0]) == sorted(codes[1])


def same_sources(before: AtCommit, after: AtCommit) -> bool:
    """Whether nothing went in that is another: neither sources nor what compiles and runs them."""
    return before.fingerprint == after.fingerprint and after.packages is None


def changed_packages(before: AtCommit, after: AtCommit, cause: Cause) -> dict[str, str]:
    """List the packages of two environments that differ, compilers or libraries, in words."""
    old, new = before.packages or {}, after.packages or {}
    return {
        name: f"{name} {old.get(name, NOT_THERE)} and {new.get(name, NOT_THERE)}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and PACKAGES.match(name)
        if (COMPILING_PACKAGES.match(name) is not None) == (cause == Cause.COMPILER)
    }


def is_same(before: AtCommit, after: AtCommit) -> bool:
    """Whether nothing of what runs is another: neither kernels nor what launches them."""
    if after.packages is not None:
        libraries = changed_packages(before, after, Cause.LIBRARY)
        return not libraries and same_code(before, after) is True
    if before.fingerprint == after.fingerprint:
        return same_code(before, after) is not False
    if before.plain == after.plain:
        return True
    return bool(same_code(before, after)) and same_host(before, after)


def same_host(before: AtCommit, after: AtCommit) -> bool:
    """Whether the same is launched in the same way, whatever the kernels' files are called."""
    same_launches = before.launches and before.launches == after.launches
    return bool(same_launches) or before.host == after.host


def compiled(before: AtCommit, after: AtCommit) -> Iterator[Difference]:
    """Compare what the compiler made (tier 0)."""
    if bool(after.error) != bool(before.error):
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


def _sizes(kernel: BuiltKernel) -> dict[str, int]:
    spilled = kernel.spill_store_bytes + kernel.spill_load_bytes
    return {**{size: getattr(kernel, size) for size in SIZES}, SPILLS: spilled}


def _kernel(old: BuiltKernel | None, new: BuiltKernel | None) -> Iterator[Difference]:
    if old is None or new is None:
        present = old or new
        name = present.kernel if present else ""
        yield Difference(0, "kernel", _yes(old is not None), _yes(new is not None), None, name)
        return
    name, sizes = new.kernel, _sizes(new)
    for size, before in _sizes(old).items():
        if before != sizes[size]:
            yield Difference(0, size, before, sizes[size], sizes[size] > before, name)
    if old.code != new.code:
        yield Difference(0, MACHINE_CODE, old.code[:12], new.code[:12], None, name)


def _paired(
    before: Sequence[tuple[BuiltKernel, str]], after: Sequence[tuple[BuiltKernel, str]]
) -> Iterator[tuple[BuiltKernel | None, BuiltKernel | None]]:
    """Pair kernels by name and macros, then in order; a kernel that gets other macros is no other
    kernel. Kernels that are not launched are left out.
    """
    old = [kernel for kernel in before if kernel[0].code or not kernel[0].source]
    new = [kernel for kernel in after if kernel[0].code or not kernel[0].source]
    old, new = old or list(before), new or list(after)
    left = list(old)
    alone: list[tuple[BuiltKernel, str]] = []
    for kernel in new:
        same = (o for o in left if (o[0].kernel, o[1]) == (kernel[0].kernel, kernel[1]))
        partner = next(same, None)
        if partner is None:
            alone.append(kernel)
        else:
            left.remove(partner)
            yield partner[0], kernel[0]
    for was, now in zip_longest(left, alone):
        yield was and was[0], now and now[0]


def counters(before: AtCommit, after: AtCommit, gate: CommitGate) -> Iterator[Difference]:
    """List counters that moved by more than their noise and the least that counts (tier 1)."""
    sides = [_with_sectors(side.figures) for side in (before, after)]
    for name in REPEATING:
        if any(name not in figures for figures in sides):
            continue
        old, new = counted(catalog()[name], *sides)
        size = abs(new.value - old.value) / max(abs(old.value), 1e-12)
        if size < gate.counters or surprise(old, new) < CERTAIN:
            continue
        was, is_now = (figures[name] for figures in sides)
        yield Difference(1, was.id, was.value, is_now.value, new.value > old.value)


def _with_sectors(figures: Mapping[str, Figure]) -> Mapping[str, Figure]:
    """Requests of loads as the sectors that they ask for, where both are known."""
    if REQUESTS not in figures or SECTORS_EACH not in figures:
        return figures
    requests, sectors_each = figures[REQUESTS], figures[SECTORS_EACH]
    return {
        **figures,
        REQUESTS: replace(requests, id=SECTORS, value=requests.value * sectors_each.value),
    }


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
    return DIFFERENCES.get(what) or figure_label(what)[0]


@dataclass(frozen=True)
class TimedPair:
    """Both commits in the same sessions: how many times faster the newer is, and µs of each.
    ``controls`` are unchanged controls of these sessions.
    """

    ratio: Ratio
    before_us: float
    after_us: float
    controls: tuple[Control, ...] = ()


@dataclass(frozen=True)
class VariantChange:
    """A variant from one commit to the other. ``tier`` is the one that gave the verdict."""

    variant: str
    verdict: Move
    why: Finding
    tier: int = 0
    cause: Cause | None = None
    differences: tuple[Difference, ...] = ()
    timed: TimedPair | None = None
    also: tuple[Finding, ...] = ()
    stale: bool = False  # the recorded evidence of the newer commit is not of its sources

    @property
    def is_bad(self) -> bool:
        return self.verdict in (Move.SLOWER, Move.BROKEN)


def judge_change(
    variant: str,
    before: AtCommit | None,
    after: AtCommit | None,
    config: Config,
    timed: TimedPair | None = None,
) -> VariantChange:
    """``before`` or ``after`` is None where the variant is not there. ``config`` is that of the
    older commit: a change does not choose the rules that it is judged by.
    """
    if after is None:
        return VariantChange(variant, Move.GONE, finding("commit.gone", "is not there any more"))
    if before is None:
        if broken := after.error or after.wrong:
            return VariantChange(variant, Move.BROKEN, _broken(broken))
        message = f"was not there before{f'; it {after.lacks}' if after.lacks else ''}"
        return VariantChange(variant, Move.NEW, finding("commit.new", message, text=after.lacks))
    differences = (*compiled(before, after), *counters(before, after, config.gate))
    change = VariantChange(
        variant, Move.SAME, _same("same_sources"), differences=differences, timed=timed
    )
    if not is_same(before, after) and (broken := after.error or after.wrong):
        change = replace(change, cause=_cause(before, after))
        failed_before = before.error if after.error else before.wrong
        if not failed_before:
            return replace(change, verdict=Move.BROKEN, why=_broken(broken))
        text = _first(broken)  # it is no change, and is not judged
        why = finding("commit.failed_before", f"failed before, too: {text}", text=text)
        return replace(change, verdict=Move.CANNOT_TELL, why=why)
    decided = _by_time(change, config) or _by_counters(change, before, after)
    decided = decided or _by_compiler(change, before, after, config)
    if decided.verdict == Move.SAME and before.method != after.method:
        message = f"{decided.why.message}; but study.py checks and times it in another way"
        why = finding("commit.same_but_study", message, why=decided.why)
        decided = replace(decided, verdict=Move.CANNOT_TELL, why=why, cause=Cause.METHOD)
    if decided.verdict == Move.SAME:
        return decided
    if decided.cause is None:
        decided = replace(decided, cause=_cause(before, after))
    return replace(decided, also=tuple(_differing_of(before, after).values()))


def with_controls(
    changes: Sequence[VariantChange], unchanged: frozenset[str]
) -> list[VariantChange]:
    """If a variant with ``unchanged`` sources moved too, counters of the others cannot tell. Times
    have controls of their own.
    """
    moved = [c for c in changes if c.variant in unchanged and c.verdict != Move.SAME and c.cause]
    if not moved:
        return list(changes)
    control = moved[0]
    message = f"{control.variant}, which is unchanged, moved as well ({control.cause})"
    why = finding("commit.control_moved", message, variant=control.variant, cause=control.cause)
    return [
        replace(c, verdict=Move.CANNOT_TELL, why=why, cause=control.cause)
        if c.tier == 1 and c.variant not in unchanged and c.verdict in (Move.FASTER, Move.SLOWER)
        else c
        for c in changes
    ]


def _broken(error: str) -> Finding:
    text = _first(error)
    return finding("commit.broken", text, text=text)


SAME = {
    "same_code": "its machine code is the same: nothing needs measuring",
    "comments_only": "only comments and blanks are others: nothing needs measuring",
    "same_sources": "its sources are the same: nothing needs measuring",
}


def _same(what: str) -> Finding:
    return finding(f"commit.{what}", SAME[what])


def _first(text: str) -> str:
    """The first line, with the first thing that the compiler complains of."""
    first, *others = text.strip().splitlines()
    said = next((line for line in others if ": error" in line), "")
    return f"{first}: {said.rpartition(f'{VIRTUAL_ROOT}/')[2]}" if said else first


def _by_time(change: VariantChange, config: Config) -> VariantChange | None:
    timed = change.timed
    if timed is None:
        return None
    us = (timed.before_us, timed.after_us)
    difference = Difference(2, TIME, *us, timed.after_us > timed.before_us)
    by_time = replace(change, tier=2, differences=(*change.differences, difference))
    if off := next((control for control in timed.controls if control.is_off), None):
        ratio = off.ratio.ratio
        message = f"the A/A control of {off.variant}, the same kernel, is {ratio:.3f}x of it"
        why = finding("commit.control", message, variant=off.variant, ratio=ratio)
        return replace(by_time, verdict=Move.CANNOT_TELL, why=why, cause=Cause.NOISE)
    move, why = time_verdict(timed.ratio, config.gate)
    cause = Cause.NOISE if move == Move.CANNOT_TELL else None
    return replace(by_time, verdict=move, why=why, cause=cause)


def time_verdict(ratio: Ratio, gate: CommitGate) -> tuple[Move, Finding]:
    """Faster or slower beyond interval and margin; the same if all of it is within the margin."""
    if ratio.low is None or ratio.high is None:
        return Move.CANNOT_TELL, finding("commit.one_session", "one session has no interval")
    margin, speed = 1 + gate.margin, f"{ratio.words}{ratio.at_level} of its speed before"
    values = {**ratio.numbers, "level": ratio.other_level}
    slower = ratio.high < 1 and ratio.ratio < 1 / margin
    if slower or (ratio.low > 1 and ratio.ratio > margin):
        move = Move.SLOWER if slower else Move.FASTER
        return move, finding("commit.time", speed, **values)
    if ratio.low >= 1 / margin and ratio.high <= margin:
        message = f"{speed}: within {100 * gate.margin:g} %"
        return Move.SAME, finding("commit.time_within", message, **values, margin=gate.margin)
    return Move.CANNOT_TELL, finding("commit.time_too_wide", f"{speed}: too wide to say", **values)


def _by_counters(change: VariantChange, before: AtCommit, after: AtCommit) -> VariantChange | None:
    """None where there are no counters of both sides, or those of what is the same are the same."""
    if not (before.figures and after.figures):
        return None
    moved = [f for f in change.differences if f.tier == 1]
    if not moved and is_same(before, after):
        return None
    parts, worse = tuple(map(_counter, moved)), [f.worse for f in moved]
    move, code = Move.CANNOT_TELL, "commit.counters_both_ways"
    message = f"counters moved both ways: {', '.join(map(str, parts))}"
    if not moved:
        code, message = "commit.no_counter_moved", "no counter moved: only a time can tell"
    elif all(worse) or not any(worse):
        move, code = Move.SLOWER if all(worse) else Move.FASTER, "commit.counters"
        message = f"by its counters: {', '.join(map(str, parts))}"
    return replace(change, tier=1, verdict=move, why=finding(code, message, counters=parts))


def _counter(moved: Difference) -> Finding:
    before, after = float(moved.before), float(moved.after)
    by = f"{100 * (after / before - 1):+.1f} %" if before else f"{before:.4g} → {after:.4g}"
    message = f"{difference_label(moved.what)} {by}"
    values = {"what": moved.what, "before": moved.before, "after": moved.after}
    return finding("commit.counter", message, **values)


def _by_compiler(
    change: VariantChange, before: AtCommit, after: AtCommit, config: Config
) -> VariantChange:
    if is_same(before, after):
        same = "same_code"
        if before.plain == after.plain and after.packages is None:
            same = "comments_only"
        if same_sources(before, after):
            same = "same_sources"
        return replace(change, verdict=Move.SAME, why=_same(same))
    code, lacks = same_code(before, after), after.lacks or before.lacks
    if code is None:
        reason = finding("commit.code_unknown", "its machine code is not known here")
        if lacks:
            reason = finding("commit.lacks", f"it {lacks}", text=lacks)
    elif code and after.packages is not None:
        libraries = ", ".join(changed_packages(before, after, Cause.LIBRARY).values())
        message = f"its own machine code is the same, but it may call {libraries}"
        reason = finding("commit.other_library", message, libraries=libraries)
    elif code:
        message = "the same kernels are launched by other code"
        reason = finding("commit.other_host_code", message)
    else:
        reason = finding("commit.other_code", "its machine code is another")
    without_report = before.without_report or after.without_report
    differences = tuple(_facts(change.differences, config))
    tables = "; counters of tables without their report do not count" if without_report else ""
    facts = f" ({', '.join(map(str, differences))})" if differences else ""
    why = finding(
        "commit.unmeasured",
        f"{reason.message}{tables}: it needs measuring{facts}",
        why=reason,
        without_report=without_report or None,
        differences=differences,
    )
    return replace(change, verdict=Move.CANNOT_TELL, why=why)


def _facts(differences: Sequence[Difference], config: Config) -> Iterator[Finding]:
    """List compiler facts that often move a time; they do not say which way."""
    for difference in differences:
        what, before, after = difference.what, difference.before, difference.after
        if isinstance(before, str) or isinstance(after, str):
            continue
        few = what == REGISTERS and abs(after - before) <= config.gate.registers
        if what in (SPILLS, WARNINGS, REGISTERS) and not few:
            of_kernel = f" of {difference.kernel}" if difference.kernel else ""
            message = f"{difference_label(what)} {before:g} → {after:g}{of_kernel}"
            values: dict[str, Value] = {"what": what, "before": before, "after": after}
            yield finding("commit.fact", message, **values, kernel=difference.kernel)


def _cause(before: AtCommit, after: AtCommit) -> Cause:
    if not is_same(before, after) and before.fingerprint != after.fingerprint:
        return Cause.SOURCE
    differing = _differing_of(before, after)
    order = (Cause.METHOD, Cause.COMPILER, Cause.LIBRARY, Cause.HARDWARE)
    return next((cause for cause in order if cause in differing), Cause.NOISE)


def _differing_of(before: AtCommit, after: AtCommit) -> dict[Cause, Finding]:
    """Compare everything besides the sources, by the cause that a difference would be."""
    causes: dict[Cause, Finding] = {}
    for cause, why in _differences_of(before, after):
        causes.setdefault(cause, why)
    return causes


def _differences_of(before: AtCommit, after: AtCommit) -> Iterator[tuple[Cause, Finding]]:
    def also(cause: Cause, code: str, text: str, **values: Value) -> tuple[Cause, Finding]:
        return cause, finding(code, f"also differs: {text}", **values)

    if before.method != after.method:
        yield also(Cause.METHOD, "differs.study_code", "the study's code")
    for cause in (Cause.COMPILER, Cause.LIBRARY):
        if packages := "; ".join(changed_packages(before, after, cause).values()):
            yield also(cause, "differs.packages", packages, packages=packages)
    old, new = before.index, after.index
    if old is None or new is None:
        return
    if (old.ncu, counting(old.ncu_flags)) != (new.ncu, counting(new.ncu_flags)):
        yield also(Cause.METHOD, "differs.ncu", "ncu, or its flags")
    for name, cause in FIELDS.items():
        was, is_now = (getattr(side.provenance, name) for side in (old, new))
        if was is not None and is_now is not None and was != is_now:
            values = {"field": name, "before": str(was), "after": str(is_now)}
            yield also(cause, "differs.field", f"{name}, {was} and {is_now}", **values)
    clocks = [side.figures.get("sm_clock") for side in (before, after)]
    if clocks[0] and clocks[1]:
        low, high = sorted(clock.value for clock in clocks if clock)
        if low and high > low * (1 + CLOCK_TOLERANCE):
            text = f"SM clock, {low:.3f} and {high:.3f} GHz"
            yield also(Cause.HARDWARE, "differs.clock", text, low_ghz=low, high_ghz=high)


CODE = "code"
MOST_SHOWN = 4


@dataclass(frozen=True)
class Rules:
    """The rules of a study at one commit: settings of the workspace, what ``study.py`` says, and
    what the ladder says beside its texts and predictions. ``code`` is the digest of the study's
    code.
    """

    study: Study
    config: Config
    code: str

    @property
    def files(self) -> dict[str, dict[str, object]]:
        """Key to value, by file."""
        study, ladder = self.study, self.study.ladder
        tables = {k: v for k, v in msgspec.to_builtins(self.config).items() if isinstance(v, dict)}
        said = {f"shape {name}": shape for name, shape in study.shapes.items()}
        bounds = {
            f"tolerance at {name}": f"{bound.absolute:g}, relative {bound.relative:g}"
            for name, shape in study.shapes.items()
            for bound in [tolerance_at(study.tolerance, shape)]
        }
        top: dict[str, object] = {
            key: getattr(ladder, key) for key in ("partial", "primary_reference")
        }
        for step in ladder.steps:
            for key in ("parent", "shape", "drops", "chooses", "corrects"):
                top[f"{step.variant}.{key}"] = getattr(step, key)
        return {
            CONFIG_FILE: {f"{t}.{k}": v for t, of in tables.items() for k, v in of.items()},
            "study.py": {**bounds, **said, "default_shape": study.default_shape, CODE: self.code},
            "ablation.toml": top,
        }


def changed_rules(before: Rules, after: Rules) -> Iterator[VariantChange]:
    """A change for each file whose rules are others. Nobody can tell from figures whether that is
    meant: it is never the same. Steps that only one side has are no change of rules.
    """
    for (file, old), new in zip(before.files.items(), after.files.values(), strict=True):
        differing = tuple(_differing_rules(old, new))
        if differing:
            first, more = differing[:MOST_SHOWN], max(0, len(differing) - MOST_SHOWN)
            message = f"{'; '.join(map(str, first))}{f'; and {more} more' if more else ''}"
            why = finding("commit.rules", message, rules=first, more=more or None)
            yield VariantChange(file, Move.CANNOT_TELL, why, cause=Cause.METHOD)


def _differing_rules(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Finding]:
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        one_sided = key not in old or key not in new
        if before == after or (one_sided and not key.startswith("shape ")):
            continue
        if key == CODE:
            yield finding("rule.code", "code of study.py (inputs, reference, work)")
        else:
            was, came = _said(before), _said(after)
            yield finding("rule", f"{key}: {was} → {came}", field=key, before=was, after=came)


def _said(value: object) -> str:
    if isinstance(value, Mapping) or value in (None, "", ()):
        return str(value) if value else "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
