"""What a change did to a variant, from what is known of it at two commits. Pure.

Three tiers, each of which says only what it can: 0, what the compiler made, without a GPU; 1, the
counters of two captures against their noise; 2, chained times of the same sessions. The highest
that has an answer gives the verdict. Changed rules of judging are a change of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from workbench.derive.figures import TIME
from workbench.derive.speedup import LEVEL, Ratio
from workbench.judge.comparability import COMPILERS, HARDWARE, LIBRARIES
from workbench.judge.comparison import (
    REGISTERS,
    SPILLS,
    WARNINGS,
    AtCommit,
    Difference,
    compiled,
    counters,
    is_same,
    same_code,
)
from workbench.judge.findings import Finding, finding
from workbench.judge.sessions import Control
from workbench.ncu.command import counting
from workbench.study.config import CommitGate, Config
from workbench.study.model import Study, tolerance_at
from workbench.study.workspace import CONFIG_FILE
from workbench.words import CLOCK_TOLERANCE, VIRTUAL_ROOT, Cause, Move


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
        return VariantChange(variant, Move.GONE, Finding("commit.gone"))
    if before is None:
        if broken := after.error or after.wrong:
            return VariantChange(
                variant, Move.BROKEN, finding("commit.broken", text=_first(broken))
            )
        return VariantChange(variant, Move.NEW, finding("commit.new", text=after.lacks))
    found = (*compiled(before, after), *counters(before, after, config.gate))
    change = VariantChange(
        variant, Move.SAME, Finding("commit.same_sources"), differences=found, timed=timed
    )
    if not is_same(before, after) and (failed := _failed(before, after)):
        return replace(change, verdict=failed[0], why=failed[1], cause=_cause(before, after))
    decided = _by_time(change, config) or _by_counters(change, before, after)
    decided = decided or _by_compiler(change, before, after, config)
    if decided.verdict == Move.SAME and before.method != after.method:
        why = finding("commit.same_but_study", why=decided.why)
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
    why = finding("commit.control_moved", variant=control.variant, cause=control.cause)
    return [
        replace(c, verdict=Move.CANNOT_TELL, why=why, cause=control.cause)
        if c.tier == 1 and c.variant not in unchanged and c.verdict in (Move.FASTER, Move.SLOWER)
        else c
        for c in changes
    ]


def _failed(before: AtCommit, after: AtCommit) -> tuple[Move, Finding] | None:
    """What fails at both commits is no change, and is not judged."""
    for name in ("error", "wrong"):
        if text := str(getattr(after, name)):
            if getattr(before, name):
                return Move.CANNOT_TELL, finding("commit.failed_before", text=_first(text))
            return Move.BROKEN, finding("commit.broken", text=_first(text))
    return None


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
    found = replace(change, tier=2, differences=(*change.differences, difference))
    if off := next((control for control in timed.controls if control.is_off), None):
        why = finding("commit.control", variant=off.variant, ratio=off.ratio.ratio)
        return replace(found, verdict=Move.CANNOT_TELL, why=why, cause=Cause.NOISE)
    move, why = time_verdict(timed.ratio, config.gate)
    cause = Cause.NOISE if move == Move.CANNOT_TELL else None
    return replace(found, verdict=move, why=why, cause=cause)


def time_verdict(ratio: Ratio, gate: CommitGate) -> tuple[Move, Finding]:
    """Faster or slower beyond interval and margin; the same if all of it is within the margin."""
    if ratio.low is None or ratio.high is None:
        return Move.CANNOT_TELL, Finding("commit.one_session")
    margin = 1 + gate.margin
    text = partial(
        finding,
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        level=None if ratio.level == LEVEL else ratio.level,
    )
    if ratio.high < 1 and ratio.ratio < 1 / margin:
        return Move.SLOWER, text("commit.time")
    if ratio.low > 1 and ratio.ratio > margin:
        return Move.FASTER, text("commit.time")
    if ratio.low >= 1 / margin and ratio.high <= margin:
        return Move.SAME, text("commit.time_within", margin=gate.margin)
    return Move.CANNOT_TELL, text("commit.time_too_wide")


def _by_counters(change: VariantChange, before: AtCommit, after: AtCommit) -> VariantChange | None:
    """None where there are no counters of both sides, or those of what is the same are the same."""
    if not (before.figures and after.figures):
        return None
    moved = [f for f in change.differences if f.tier == 1]
    if not moved:
        if is_same(before, after):
            return None
        why = Finding("commit.no_counter_moved")
        return replace(change, tier=1, verdict=Move.CANNOT_TELL, why=why)
    parts = tuple(
        finding("commit.counter", what=one.what, before=one.before, after=one.after)
        for one in moved
    )
    worse = [f.worse for f in moved]
    if all(worse) or not any(worse):
        move, code = Move.SLOWER if all(worse) else Move.FASTER, "commit.counters"
    else:
        move, code = Move.CANNOT_TELL, "commit.counters_both_ways"
    return replace(change, tier=1, verdict=move, why=finding(code, counters=parts))


def _by_compiler(
    change: VariantChange, before: AtCommit, after: AtCommit, config: Config
) -> VariantChange:
    if is_same(before, after):
        same = "same_code"
        if before.plain == after.plain:
            same = "comments_only"
        if before.fingerprint == after.fingerprint:
            same = "same_sources"
        return replace(change, verdict=Move.SAME, why=Finding(f"commit.{same}"))
    code, lacks = same_code(before, after), after.lacks or before.lacks
    if code is None:
        known = finding("commit.lacks", text=lacks) if lacks else Finding("commit.code_unknown")
    else:
        known = Finding("commit.other_host_code" if code else "commit.other_code")
    why = finding(
        "commit.unmeasured",
        why=known,
        without_report=before.without_report or after.without_report or None,
        differences=tuple(_facts(change.differences, config)),
    )
    return replace(change, verdict=Move.CANNOT_TELL, why=why)


def _facts(differences: Sequence[Difference], config: Config) -> Iterator[Finding]:
    """What the compiler says that often moves a time. It says not which way."""
    for one in differences:
        if isinstance(one.before, str) or isinstance(one.after, str):
            continue
        few = one.what == REGISTERS and abs(one.after - one.before) <= config.gate.registers
        if one.what in (SPILLS, WARNINGS, REGISTERS) and not few:
            yield finding(
                "commit.fact", what=one.what, before=one.before, after=one.after, kernel=one.kernel
            )


def _cause(before: AtCommit, after: AtCommit) -> Cause:
    if not is_same(before, after) and before.fingerprint != after.fingerprint:
        return Cause.SOURCE
    differing = _differing_of(before, after)
    order = (Cause.METHOD, Cause.COMPILER, Cause.LIBRARY, Cause.HARDWARE)
    return next((cause for cause in order if cause in differing), Cause.NOISE)


def _differing_of(before: AtCommit, after: AtCommit) -> dict[Cause, Finding]:
    """What besides the sources is not as it was, by the cause that it would be."""
    found: dict[Cause, Finding] = {}
    if before.method != after.method:
        found[Cause.METHOD] = Finding("differs.study_code")
    one, other = before.index, after.index
    if one is None or other is None:
        return found
    if (one.ncu, counting(one.ncu_flags)) != (other.ncu, counting(other.ncu_flags)):
        found.setdefault(Cause.METHOD, Finding("differs.ncu"))
    kinds = ((Cause.COMPILER, COMPILERS), (Cause.LIBRARY, LIBRARIES), (Cause.HARDWARE, HARDWARE))
    for cause, names in kinds:
        for name in names:
            was, is_now = (getattr(side.provenance, name) for side in (one, other))
            if was is not None and is_now is not None and was != is_now:
                result = finding("differs.field", field=name, before=str(was), after=str(is_now))
                found.setdefault(cause, result)
    clocks = [side.figures.get("sm_clock") for side in (before, after)]
    if clocks[0] and clocks[1]:
        low, high = sorted(clock.value for clock in clocks if clock)
        if low and high > low * (1 + CLOCK_TOLERANCE):
            result = finding("differs.clock", low_ghz=low, high_ghz=high)
            found.setdefault(Cause.HARDWARE, result)
    return found


CODE = "code"
MOST_SHOWN = 4


@dataclass(frozen=True)
class Rules:
    """Those of a study at one commit: settings of the workspace, what ``study.py`` says, and what
    the ladder says beside its texts and predictions. ``code`` is the digest of the study's code.
    """

    study: Study
    config: Config
    code: str

    @property
    def files(self) -> dict[str, dict[str, object]]:
        """Key to value, by file from the study's folder."""
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
            f"../../{CONFIG_FILE}": {
                f"{t}.{k}": v for t, of in tables.items() for k, v in of.items()
            },
            "study.py": {**bounds, **said, "default_shape": study.default_shape, CODE: self.code},
            f"../../ablations/{study.name}/ablation.toml": top,
        }


def changed_rules(before: Rules, after: Rules) -> Iterator[VariantChange]:
    """A change for each file whose rules are others. Nobody can tell from figures whether that is
    meant: it is never the same. Steps that only one side has are no change of rules.
    """
    for (file, old), new in zip(before.files.items(), after.files.values(), strict=True):
        found = tuple(_differing_rules(old, new))
        if found:
            more = len(found) - MOST_SHOWN
            why = finding("commit.rules", rules=found[:MOST_SHOWN], more=more if more > 0 else None)
            name = file.rpartition("/")[2]
            yield VariantChange(name, Move.CANNOT_TELL, why, cause=Cause.METHOD)


def _differing_rules(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[Finding]:
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        one_sided = key not in old or key not in new
        if before == after or (one_sided and not key.startswith("shape ")):
            continue
        if key == CODE:
            yield Finding("rule.code")
        else:
            yield finding("rule", field=key, before=_said(before), after=_said(after))


def _said(value: object) -> str:
    if isinstance(value, Mapping) or value in (None, "", ()):
        return str(value) if value else "none"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
