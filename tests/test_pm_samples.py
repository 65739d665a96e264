"""How often ncu samples: as often as a chart needs, where it is known how long a call takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standin import Run, StandIn
from workbench.cli import main
from workbench.commands.measuring import job
from workbench.commands.target import find_target
from workbench.judge.deciding import Deciding
from workbench.ncu.command import INTERVAL, counting, flags, sampled
from workbench.places.plan import Errand
from workbench.run.plan import Plan
from workbench.study.config import MOST_SAMPLES, Profiler
from workspaces import GOOD, make, step

HOPPER, TURING, GA100 = "9.0", "7.5", "8.0"


def interval(*times: float | None, on: str = HOPPER, samples: int = 400) -> int | None:
    """In nanoseconds; None where ncu is told of none."""
    added = sampled(Profiler(samples=samples), times, on).extra_flags
    assert added[:1] == (INTERVAL,) * bool(added)
    return int(added[1]) if added else None


@pytest.mark.parametrize(
    ("microseconds", "nanoseconds"),
    [
        (0.0, None),
        (-1.0, None),  # a call that adds nothing to its neighbours
        (20.0, None),
        (400.0, None),  # 1 µs: ncu's own is 1.5
        (401.0, 2000),
        (2800.0, 7000),
        (2801.0, 8000),
        (1e6, 2_500_000),
    ],
)
def test_the_interval_is_in_whole_microseconds_above_ncus_own(
    microseconds: float, nanoseconds: int | None
) -> None:
    assert interval(microseconds) == nanoseconds


def test_the_shortest_call_says_how_often() -> None:
    assert interval(9000.0, 3000.0, 4000.0) == 8000
    assert interval(3000.0, 3000.0, samples=100) == 30_000
    assert interval(3000.0, samples=0) is None


def test_no_call_gets_more_samples_than_ncu_takes_by_itself() -> None:
    """A baseline of 29 ms beside a step of half a millisecond: ncu's own interval is longer."""
    assert interval(500.0, 4000.0) == 2000
    assert interval(500.0, 4001.0) is None
    assert interval(500.0, 29_000.0) is None


def test_where_a_time_is_not_known_ncu_is_left_alone() -> None:
    assert interval() is None
    assert interval(None) is None
    assert interval(3000.0, None) is None


def test_where_intervals_are_in_cycles_ncu_is_left_alone() -> None:
    assert interval(3000.0, on=TURING) is None
    assert interval(3000.0, on=GA100) is None
    assert interval(3000.0, on="8.6") == 8000


@pytest.mark.parametrize("given", [(INTERVAL, "5000"), (f"{INTERVAL}=5000",)])
def test_an_interval_of_the_user_stays(given: tuple[str, ...]) -> None:
    settings = Profiler(extra_flags=("--verbose", *given))
    assert sampled(settings, [3000.0], HOPPER) is settings
    assert counting(flags(settings)) == (*flags(Profiler()), "--verbose")


@given(
    st.lists(st.floats(min_value=0.1, max_value=1e7), min_size=1, max_size=5),
    st.integers(1, MOST_SAMPLES),
)
def test_what_is_sampled_at_an_interval(times: list[float], samples: int) -> None:
    settings = Profiler(samples=samples, extra_flags=("--verbose",))
    found = sampled(settings, times, HOPPER)
    assert counting(flags(found)) == tuple(flags(settings))
    if found != settings:
        *rest, name, nanoseconds = found.extra_flags
        assert (rest, name) == (["--verbose"], INTERVAL)
        taken = [1000 * time / int(nanoseconds) for time in times]
        assert samples / 2 < min(taken) <= samples  # rounded up, from one interval on
        assert max(taken) <= MOST_SAMPLES


def test_what_is_not_the_interval_is_compared() -> None:
    before = ("--set", "full", "--cache-control", "none")
    assert counting(before) == before
    assert counting(()) == ()
    assert counting(("--set", "full", INTERVAL, "8000", *before[2:])) == before
    assert counting(("--set", "basic", INTERVAL, "8000")) == ("--set", "basic")


# ---- a plan ------------------------------------------------------------------------------------
def long_ones(run: Run) -> float:
    return {"baseline": 5000.0, "fix": 3000.5}.get(run.variant, 20.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "ws", {"baseline": GOOD, "fix": GOOD})


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch, long_ones, noise=0.0)


def ablate(root: Path) -> None:
    assert main(["ablate", "--project", str(root)]) == 0


def test_a_ladder_with_times_on_record_is_sampled_by_them(root: Path, gpu: StandIn) -> None:
    ablate(root)
    ablate(root)
    sources = root / "kernels" / "scale" / "fix.cu"
    sources.write_text(f"// other sources\n{sources.read_text()}")
    ablate(root)
    assert gpu.captured == ["baseline", "fix"] * 3
    first, *later = gpu.flags
    assert first == flags(Profiler())
    assert later == [[*first, INTERVAL, "8000"]] * 2


def test_a_step_without_a_time_leaves_the_interval_to_ncu(root: Path, gpu: StandIn) -> None:
    ablate(root)
    for name in ("fix.py", "fix.cu"):
        text = (root / "kernels" / "scale" / name).read_text()
        (root / "kernels" / "scale" / name.replace("fix", "new")).write_text(text)
    ladder = root / "ablations" / "scale" / "ablation.toml"
    ladder.write_text(f"{ladder.read_text()}\n{step('new')}")
    ablate(root)
    assert gpu.captured[2:] == ["baseline", "fix", "new"]
    assert gpu.flags == [flags(Profiler())] * 2


def test_none_are_asked_for(root: Path, gpu: StandIn) -> None:
    config = root / "workbench.toml"
    config.write_text(f"{config.read_text()}\n[profiler]\nsamples = 0\n")
    ablate(root)
    ablate(root)
    assert gpu.flags == [flags(Profiler())] * 2


def test_it_travels_to_a_place(root: Path, gpu: StandIn) -> None:
    ablate(root)
    target = find_target(root, None, None)

    def asked(plan: Plan) -> tuple[str, ...]:
        found = job(target, plan, Deciding())
        return Errand(found.study, found.config, found.folder, plan).block([]).profiler.extra_flags

    assert asked(Plan("large", captured=("baseline",))) == (INTERVAL, "13000")
    assert asked(Plan("large", captured=("baseline", "fix"))) == (INTERVAL, "8000")
    assert asked(Plan("large", timed=("baseline", "fix"))) == ()
