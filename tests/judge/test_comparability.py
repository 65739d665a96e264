"""What makes captures and sessions not quite comparable, and with what they were made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from answers import not_none
from made_evidence import (
    THEIR_TIMES,
    TWO_STEPS,
    snapshot,
    step,
    timing,
    together,
    with_series,
    with_sessions,
    with_timings,
    with_variant,
)
from made_records import made_index, metrics
from workbench.derive.figures import figures
from workbench.evidence.records import CaptureIndex, Provenance, Series, Session
from workbench.judge.findings import sentences
from workbench.judge.ladder import judge
from workbench.judge.provenance import environment_of, throttling_warnings
from workbench.judge.session_checks import Throttling, timing_facts
from workbench.load import LadderEvidence, TimedTogether
from workbench.ncu.capture import Capture, KeptTables
from workbench.ncu.command import INTERVAL
from workbench.study.config import Config

CLOCK = "gpc__cycles_elapsed.avg.per_second"


def provenance(**changes: str) -> Provenance:
    known = Provenance(gpu="NVIDIA H200", driver="580.1", date="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(known, **changes)


def index(variant: str, *, ncu: str = "2025.3.1", **changes: str) -> CaptureIndex:
    return made_index(
        variant,
        "s",
        report=f"{variant}.ncu-repz",
        ncu=ncu,
        ncu_flags=("--set", "full", "--cache-control", "all"),
        provenance=provenance(**changes),
    )


def capture(variant: str, clock: float) -> Capture:
    rows = metrics({CLOCK: clock, "gpu__time_duration.sum": 1e4})
    values = [*rows.rows("metric", "value", "unit")]
    launch = KeptTables(kernel="k", metrics=values, lines=[], rules=[], collected=frozenset())
    return Capture(Path(f"{variant}.ncu-repz"), (launch,))


def profiled(clocks: dict[str, float], indexes: dict[str, CaptureIndex]) -> LadderEvidence:
    """Two variants with captures at these SM clocks, in Hz."""
    return with_captures(
        snapshot(TWO_STEPS, {"s": THEIR_TIMES}, captured=False), "s", clocks, indexes
    )


def with_captures(
    taken: LadderEvidence, at: str, clocks: dict[str, float], indexes: dict[str, CaptureIndex]
) -> LadderEvidence:
    for name, clock in clocks.items():
        made = capture(name, clock)
        own: Any = {"capture": made, "figures": figures(made.metrics), "index": indexes[name]}
        taken = with_variant(taken, at, name, **own)
    return taken


def warnings(
    clocks: dict[str, float] | None = None, fix: CaptureIndex | None = None
) -> tuple[str, ...]:
    indexes = {"base": index("base"), "fix": fix or index("fix")}
    taken = profiled(clocks or {"base": 1.98e9, "fix": 1.98e9}, indexes)
    return sentences(judge(taken, Config()).warnings)


def test_like_captures_need_no_word() -> None:
    assert warnings() == ()
    assert warnings({"base": 1.98e9, "fix": 1.95e9}) == ()


def test_other_intervals_of_pm_samples_count_the_same() -> None:
    known = index("fix")
    often, otherwise = (
        msgspec.structs.replace(known, ncu_flags=(*flags[:2], INTERVAL, "8000", *flags[2:]))
        for flags in (known.ncu_flags, ("--set", "basic"))
    )
    assert warnings(fix=often) == ()
    (told,) = warnings(fix=otherwise)
    assert told == (
        "captures differ in ncu_flags: ['--set', 'basic'], "
        "['--set', 'full', '--cache-control', 'all']"
    )


def test_clocks_more_than_two_percent_apart_are_told() -> None:
    assert warnings({"base": 1.98e9, "fix": 1.5e9}) == (
        "captures ran at different SM clocks: fix at 1.500 GHz, base at 1.980 GHz",
    )


def test_captures_at_another_shape_that_a_verdict_rests_on_are_held_against_each_other() -> None:
    """The table's own captures are alike: those of the shape where the step is judged are not."""
    steps = [TWO_STEPS[0], step("fix", "base", shape="large")]
    taken = snapshot(steps, {"s": THEIR_TIMES, "large": THEIR_TIMES}, captured=False)
    slow = {"base": 1.80e9, "fix": 1.60e9}
    flags = ("--set", "full", "--cache-control", "none")
    other = {"base": index("base"), "fix": msgspec.structs.replace(index("fix"), ncu_flags=flags)}
    taken = with_captures(taken, "large", slow, other)
    clocks, *rest = sentences(judge(taken, Config()).warnings)
    assert clocks == (
        "captures ran at different SM clocks at large: fix at 1.600 GHz, base at 1.800 GHz"
    )
    assert [text.partition(":")[0] for text in rest] == ["captures differ in ncu_flags at large"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (index("fix", driver="570.2"), "captures differ in driver: 570.2, 580.1"),
        (index("fix", gpu="NVIDIA H100"), "captures differ in gpu: NVIDIA H100, NVIDIA H200"),
        (index("fix", ncu="2024.1.0"), "captures differ in ncu: 2024.1.0, 2025.3.1"),
        (index("fix", cuda="13.0"), "captures differ in cuda: 13.0, not collected"),
    ],
)
def test_captures_of_another_making_are_told(other: CaptureIndex, words: str) -> None:
    assert warnings(fix=other) == (words,)


def test_throttling_is_told_with_its_share() -> None:
    taken = profiled({}, {})
    (known,) = taken.shapes["s"].timings
    slowed = with_sessions(known.timing, throttled=0.25, reasons=("sw_power_cap",))
    found = judge(with_timings(taken, "s", together(slowed)), Config())
    told = "power-limited at s, in 25 % of the rounds: SM clock 1.98 GHz of 1.98 (base)"
    assert sentences(found.warnings) == (f"the GPU was {told}",)


def test_the_lowest_clock_is_of_a_variant_as_it_is_now() -> None:
    """Not of one that has changed since, or of another that had its name."""
    known = timing("s", {"old": 10.0, "fix": 11.0, "base": 12.0})

    def at(_: Session, one: Series) -> Series:
        clock = {"old": 1200.0, "fix": 1500.0, "base": 1900.0}[one.variant]
        clocks = (clock,) * len(one.microseconds)
        return msgspec.structs.replace(one, mhz=clocks, around_mhz=clocks)

    throttled = with_sessions(with_series(known, at), throttled=1.0)
    taken = TimedTogether("s.json", throttled, frozenset({"fix", "base"}))
    facts = not_none(timing_facts(taken, ""))
    assert facts.throttling is not None
    assert (facts.throttling.variant, facts.throttling.sm_clock_mhz) == ("fix", 1500.0)


def test_of_shapes_that_are_always_throttled_the_lowest_clock_is_told() -> None:
    found = {
        shape: Throttling(1.0, ("sw_power_cap",), "fix", clock, 1980.0)
        for shape, clock in (("s", 1640.0), ("t", 1530.0), ("u", None))
    }
    (told,) = sentences(throttling_warnings(found))
    assert told == (
        "the GPU was power-limited at s, t, u, at most in 100 % of the rounds: SM clock 1.53 GHz "
        "of 1.98 (fix)"
    )


def test_the_environment_is_that_of_the_session_and_ncu_of_the_newest_capture() -> None:
    old = index("base", ncu="2024.1.0", date="2025-12-01T00:00:00Z")
    new = index("fix", cudnn="9.1", date="2025-12-31T00:00:00Z")
    found = environment_of([old, new], provenance(driver="590.0", command="workbench ablate"))
    assert (found.ncu, found.ncu_options["--cache-control"]) == ("2025.3.1", "all")
    assert (found.driver, found.cudnn, found.command) == ("590.0", "9.1", "workbench ablate")
    assert found.day == "2026-01-01"


def test_without_evidence_nothing_is_said_of_the_environment() -> None:
    found = environment_of([], None)
    assert (found.gpu, found.day, found.ncu, found.ncu_flags) == (None, "", "not collected", ())
