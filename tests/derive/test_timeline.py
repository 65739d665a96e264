"""Timelines: from the trace of ``iket`` to figures, faults, charts and what verbs print."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from answers import Capsys, Patch, both_of, error_of, json_of, not_none, text_of
from standin import ENVIRONMENT, StandIn
from workbench import bounds
from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.derive.timeline import CallTimeline, call_timeline
from workbench.errors import ToolFailed, UsageError
from workbench.evidence import store
from workbench.evidence.records import Provenance, Timeline
from workbench.judge.advice_rules import faults
from workbench.render.chart.charts import perfetto, timeline_chart
from workbench.run import iket, machine
from workbench.run.process import WorkerEnd
from workbench.run.protocol import DeviceFound, Done, Event, Start, VariantsJob
from workbench.study.sources import Fingerprints
from workbench.words import Change, Phase
from workspaces import GOOD, ROOT, copy_of_fixture, make

FAKE = Path(__file__).parents[1] / "fake_iket"


# ---- traces as ``iket`` writes them, of launches whose blocks are said
TICK = 32
Block = tuple[int, Sequence[tuple[int, int]]]  # an SM, and start and end of each warp in ticks


def trace(*launches: tuple[str, Sequence[Block]], graph: int = 1) -> dict[str, object]:
    """The whole file, of which so many of the last launches are a ``graph``'s. The last block comes
    first, as in real ones.
    """
    table: list[dict[str, object]] = []
    every = []
    for name, blocks in launches:
        warps = []
        for number, (sm, lives) in reversed(list(enumerate(blocks))):
            for warp, (start, end) in enumerate(lives):
                times = {"startTs": 10**18 + TICK * start, "endTs": 10**18 + TICK * end}
                warps.append({**times, "locIdx": len(table)})
                table.append({"ctaId": [number, 0, 0], "smId": sm, "warpId": warp, "gpcId": 0})
        size = {"gridDimX": len(blocks), "blockDimX": 32 * len(blocks[0][1])}
        ones = dict.fromkeys(("gridDimY", "gridDimZ", "blockDimY", "blockDimZ"), 1)
        every.append({"kernelName": name, **size, **ones, "gridId": 1, "warpLifetimes": warps})
    graphs = {"graph_exec_2:0": every[-graph:]}
    return {"launches": every[:-graph], "graphLaunches": graphs, "locationTable": table}


def written(path: Path, *launches: tuple[str, Sequence[Block]]) -> Path:
    path.write_text(json.dumps(trace(*launches)))
    return path


def call(folder: Path, *launches: Sequence[Block]) -> CallTimeline:
    """Launches of one call, all of a graph, read through a file."""
    named = [(f"kernel{number}", blocks) for number, blocks in enumerate(launches)]
    (folder / "a.trace.json").write_text(json.dumps(trace(*named, graph=len(named))))
    return call_timeline(iket.call_in(folder, ""))


def even(
    sms: int = 8, waves: int = 4, life: int = 100, *, gap: int = 0, after: int = 0, early: int = 0
) -> list[Block]:
    """Equal blocks of four warps, one at a time on each SM, ``gap`` after another, the first of
    them ``after`` the start. Of each the first warp ends ``early``.
    """
    return [
        (sm, [(start, start + life - early * (warp == 0)) for warp in range(4)])
        for wave in range(waves)
        for sm in range(sms)
        for start in [after + wave * (life + gap)]
    ]


def on(sm: int, start: int, end: int) -> Block:
    return sm, [(start, end)] * 4


TAIL = [*even(waves=1), on(0, 100, 200), on(1, 100, 200)]
SLOW = [*even(waves=3), on(5, 300, 1500), *(on(sm, 300, 400) for sm in range(8) if sm != 5)]
UNEVEN = [on(sm, 0, 100 + 20 * sm) for sm in range(24)]


def test_a_launch_has_its_span_ramp_tail_and_imbalance(tmp_path: Path) -> None:
    blocks = [*even(sms=10, waves=1), on(0, 100, 150), on(1, 110, 200)]
    (one,) = call(tmp_path, blocks).launches
    assert (one.blocks, one.sms, one.resident) == (12, 10, 1)
    assert one.span_us == pytest.approx(6.4)
    assert one.ramp_us == 0
    assert one.tail_us == pytest.approx(3.2)
    assert one.tail_idle == pytest.approx((8 * 100 + 50) / 2000)
    assert one.gaps_idle == pytest.approx(10 / 2000)
    assert one.imbalance == pytest.approx(190 / ((8 * 100 + 150 + 190) / 10))
    assert (one.median_us, one.longest_us) == pytest.approx((3.2, 3.2))
    late = [on(sm, 10 * sm, 200) for sm in range(10)]
    assert call(tmp_path, late).launches[0].ramp_us == pytest.approx(80 * 0.032)
    both = [on(0, 0, 100), on(0, 50, 100), on(0, 60, 90), on(0, 100, 200)]
    assert call(tmp_path, both).launches[0].resident == 3


PLANTED: dict[str, tuple[list[Sequence[Block]], Change, float, str]] = {
    "tail": ([TAIL], Change.TAIL, 0.375, "the last wave of blocks is not full"),
    "slow_block": ([SLOW], Change.BALANCE, 0.64, "block 24 on SM 5 takes 38.4 µs, 12 times"),
    "uneven": ([UNEVEN], Change.BALANCE, 0.41, "the lives of blocks differ by a factor of 4.1"),
    "late_producer": ([even(early=25)], Change.OVERLAP, 0.25, "warp 0 ended after 75 %"),
    "gaps": ([even(gap=10)], Change.WARPS, 0.07, "an SM has 1 block at once, and none for 7 %"),
    "launches": ([even(), even(after=450)], Change.EARLY, 0.06, "each of 2 launches starts when"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named_and_nothing_else(tmp_path: Path, fault: str) -> None:
    launches, change, share, sentence = PLANTED[fault]
    (named,) = faults(call(tmp_path, *launches))
    assert named.why.code == f"timeline.{fault}"
    assert named.change == change
    assert named.saved == pytest.approx(share, abs=0.006)
    assert sentence in named.why.message


def test_even_kernels_have_no_fault(tmp_path: Path) -> None:
    noise = random.Random(1)
    rough = [on(sm, 0, noise.randrange(95, 105)) for sm in range(132)]
    pipelined = even(early=10)
    reduced = [(sm, [(0, 100), (0, 70), (0, 70), (0, 70)]) for sm in range(8)]  # most end early
    short = even(life=20, early=8)
    for blocks in (even(), rough, pipelined, reduced, short, even(gap=4), [on(0, 0, 100)]):
        assert faults(call(tmp_path, blocks)) == ()
    overlapped = call(tmp_path, even(), even(after=350))
    assert overlapped.between_us == 0
    assert faults(overlapped) == ()
    named = [("a", even()), ("b", even(after=450)), ("c", even(after=860))]
    written(tmp_path / "a.trace.json", *named)  # not all are a graph's
    assert faults(call_timeline(iket.call_in(tmp_path, ""))) == ()


def recorded(name: str) -> CallTimeline:
    """What an H200 recorded."""
    file = store.read_record(ROOT / f"tests/recorded/timelines/{name}.json.zst", Timeline)
    return call_timeline(file.launches)


def test_real_traces_show_what_was_planted_and_what_docs_say(capsys: Capsys) -> None:
    page = (ROOT / "docs/timeline.md").read_text()
    named = {fault.why.values["kernel"]: fault.why for fault in faults(recorded("planted"))}
    assert {kernel: why.code for kernel, why in named.items()} == {
        "_Z10slow_blockPf": "timeline.slow_block",
        "_Z9tail_wavePf": "timeline.tail",
        "_Z13late_producerPf": "timeline.late_producer",
        "_Z10no_overlapPf": "timeline.gaps",
    }
    assert all(f"- {why.message}." in page for why in named.values())
    for name in ("fix6", "fix7", "fused"):
        assert faults(recorded(name)) == ()
    sides = {name: recorded(name) for name in ("fix6", "fix7")}
    about = "attention, B=4 H=16 S=2048 D=64, NVIDIA H200; µs while traced"
    drawn = timeline_chart("timeline", about, sides)
    assert drawn.svg("light") == (ROOT / "docs/timeline/fix7-light.svg").read_text()
    assert drawn.svg("dark") == (ROOT / "docs/timeline/fix7-dark.svg").read_text()
    assert drawn.alt in page


def test_only_what_follows_the_last_mark_is_the_call(tmp_path: Path) -> None:
    written(tmp_path / "small.trace.json", ("other", even(sms=1, waves=1)))
    parts = [("warm", even()), (iket.MARK, even(after=500)), ("warm", even(after=1000))]
    written(
        tmp_path / "a.trace.json", *parts, (iket.MARK, even(after=1500)), ("k", even(after=2000))
    )
    assert [one.kernel for one in iket.call_in(tmp_path, "")] == ["k"]
    names = [one.kernel for one in iket.last_of_each(tmp_path, "", None, 2)]
    assert len(names) == 2
    (warm,) = iket.last_of_each(tmp_path, "", "arm", 5)
    assert (warm.kernel, warm.begin, warm.tick_ns) == ("warm", 0, 32 * 100)
    with pytest.raises(ToolFailed, match="no such kernel"):
        iket.last_of_each(tmp_path, "", "missing", 5)


def test_a_trace_that_is_not_whole_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    path = written(tmp_path / "a.trace.json", ("k", even()))
    whole = json.loads(path.read_text())
    whole["graphLaunches"]["graph_exec_2:0"][0]["warpLifetimes"].pop()
    path.write_text(json.dumps(whole))
    with pytest.raises(ToolFailed, match="recorded 127 of 128 warps of k"):
        iket.call_in(tmp_path, "")
    path.write_text('{"launches": 3}')
    with pytest.raises(ToolFailed, match="cannot be read"):
        iket.call_in(tmp_path, "")
    path.unlink()
    with pytest.raises(ToolFailed, match="wrote no trace: it fell"):
        iket.call_in(tmp_path, "it fell")
    written(path, ("k", even()))
    monkeypatch.setattr(bounds, "TIMELINE_BLOCKS", 31)
    with pytest.raises(ToolFailed, match="k has 32 blocks; a timeline keeps 31"):
        iket.call_in(tmp_path, "")


def test_of_many_warps_every_so_many_th_block_keeps_its_own(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    whole = call(tmp_path, even(early=25)).launches[0]
    monkeypatch.setattr(bounds, "TIMELINE_WARPS", 50)
    thin = call(tmp_path, even(early=25)).launches[0]
    assert (thin.launch.stride, len(thin.launch.warp_lives)) == (3, 11 * 4)
    assert thin == whole


def test_evidence_is_small_and_refused_where_its_columns_differ(tmp_path: Path) -> None:
    noise = random.Random(2)

    def lives(start: int) -> list[tuple[int, int]]:
        return [(start + noise.randrange(9), start + 250 + noise.randrange(200)) for _ in range(4)]

    blocks = [(n % 132, lives(60 * (n // 132))) for n in range(1024)]
    launch = call(tmp_path, blocks).launches[0].launch
    record = Timeline(
        variant="v", shape="s", fingerprint="f", iket="4.8.1",
        provenance=Provenance(date="2026-01-01T00:00:00Z"), launches=(launch,),
    )  # fmt: skip
    path = tmp_path / "t.json.zst"
    store.write(path, record)
    assert store.read_record(path, Timeline) == record
    assert path.stat().st_size < 300_000 * len(launch.warp_lives) / 32768
    broken = structs.replace(record, launches=(structs.replace(launch, warps=4),))
    data = store.encoded(broken, Path("t.json")).replace(b'"stride": 1', b'"stride": 2')
    with pytest.raises(UsageError, match="columns of different lengths"):
        store.decode(Path("t.json"), data, Timeline)


def test_the_chart_shows_sides_on_one_axis_and_perfetto_every_block(tmp_path: Path) -> None:
    sides = {"slow": call(tmp_path, SLOW), "fast": call(tmp_path, even(early=25))}
    chart = timeline_chart("timeline", "here", sides)
    for width in (920.0, 350.0):
        text = chart.svg("dark", width)
        assert "slow: 48.0 µs, 8 SMs" in text
        assert "fast: 12.8 µs, 8 SMs" in text
        ends = [float(end) for end in re.findall(r"H([\d.]+)", text)]
        assert max(ends) == width - 8
    events = json.loads(gzip.decompress(perfetto(sides["slow"])))["traceEvents"]
    bars = [event for event in events if event["ph"] == "X"]
    assert len(bars) == len(SLOW)
    assert {event["tid"] for event in bars} == {0}
    assert max(event["dur"] for event in bars) == 38.4
    two = call(tmp_path, [on(0, 0, 100), on(0, 50, 150), on(0, 100, 200)])
    bars = json.loads(gzip.decompress(perfetto(two)))["traceEvents"][1:]
    assert [event["tid"] for event in bars] == [0, 1, 0]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder beside a stand-in for iket."""
    trace = written(tmp_path / "x.json", ("even", even()), ("late", even(after=500, early=25)))
    monkeypatch.setenv("FAKE_TRACE", str(trace))
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setattr(machine, "find_gpu", lambda: object())
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


RUN = ("profile", "--timeline", "--", "bash", "-c")


def test_a_program_is_traced_once(program: Path, capsys: Capsys) -> None:
    text, notes = both_of(capsys, *RUN, "echo epoch")
    assert notes == "tracing the warps of bash -c 'echo epoch'\nepoch\n"
    assert "| `late` | 12.8 | 32 | 1 |" in text
    assert "late: in each block warp 0 ended after 75 % of its life" in text
    assert {path.name for path in program.iterdir()} == {"bash.trace.json.gz", "bash.svg"}
    told = json_of(capsys, "profile", "--timeline", "--json", *RUN[2:], "true")
    assert [fault["code"] for fault in told["faults"]] == ["timeline.late_producer"]
    assert told["files"] == ["bash-2.trace.json.gz", "bash-2.svg"]
    brief = json_of(capsys, "profile", "--timeline", "--brief", *RUN[2:], "true")
    assert len(brief["faults"]) == 1


def test_a_program_that_fails_or_asks_too_much_is_told(
    program: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    assert "ended with exit code 3" in error_of(capsys, *RUN, "exit 3", code=4)
    monkeypatch.delenv("FAKE_TRACE")
    assert "iket wrote no trace" in error_of(capsys, *RUN, "true", code=4)
    assert "--skip is for a profile" in error_of(
        capsys, *RUN[:2], "--skip", 2, *RUN[2:], "true", code=2
    )


def test_without_the_package_a_hint_names_the_extra(capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr(iket, "find_spec", lambda name: None)
    error = error_of(capsys, *RUN, "true", code=3)
    assert "a timeline needs nvidia-cutlass-dsl-libs-base 4.8.1 or newer" in error
    assert "[timeline]'" in error


class Tracing(StandIn):
    """A GPU whose workers write a trace under iket."""

    def start(self, scratch: Path, job: Any, *more: Any, **cubins: Path) -> Any:
        if not isinstance(job, VariantsJob):
            return super().start(scratch, job, **cubins)
        assert job.phases == (Phase.TRACE,)
        assert more[0][2:] == iket.command()[2:]
        (scratch / iket.OUTPUT).mkdir(exist_ok=True)
        parts = [(iket.MARK, even()), ("scale", even(after=500, early=25))]
        written(scratch / iket.OUTPUT / "a.trace.json", *parts)
        return Traces(job.variants[0], scratch)


class Traces:
    def __init__(self, variant: str, scratch: Path) -> None:
        self.variant, self.scratch = variant, scratch

    def watch(self, limit: float, on_event: Any) -> WorkerEnd:
        start = Start(variant=self.variant, phase=Phase.TRACE)
        events: list[Event] = [DeviceFound(environment=ENVIRONMENT), start, Done()]
        for event in events:
            on_event(event)
        return WorkerEnd(events=events, returncode=0)


def test_variants_are_traced_with_their_parents_once(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    root = make(tmp_path / "root", {"baseline": GOOD, "fix": GOOD, "other": GOOD})
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.chdir(tmp_path)
    Tracing(monkeypatch, lambda run: 10.0)
    notes = both_of(capsys, "profile", "fix", "--timeline", project=root).err
    assert "tracing fix" in notes
    assert "tracing baseline" in notes
    assert "fix.trace.json.gz: fix for ui.perfetto.dev" in notes
    files = sorted(path.name for path in root.rglob("timelines/*"))
    assert files == ["baseline.json.zst", "fix.json.zst"]
    assert "tracing" not in both_of(capsys, "profile", "fix", "--timeline", project=root).err
    monkeypatch.setattr(iket, "find_spec", lambda name: None)
    assert "a timeline needs" in error_of(
        capsys, "profile", "fix", "--timeline", "--fresh", project=root, code=3
    )


def test_a_recorded_timeline_stands_in_profile_advice_and_report(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    root = copy_of_fixture(tmp_path / "root", "softmax")
    monkeypatch.chdir(tmp_path)
    target = find_target(Local(), root, None, None)
    step = target.study.ladder.step("fused")
    parent = not_none(not_none(step).parent)
    prints = Fingerprints(target.study)
    for name, blocks in ((parent, even()), ("fused", SLOW)):
        record = Timeline(
            variant=name, shape=target.shape, iket="4.8.1",
            fingerprint=prints.at_shape(name, target.study.shapes[target.shape].parameters),
            provenance=Provenance(date="2026-01-01T00:00:00Z"),
            launches=tuple(one.launch for one in call(tmp_path, blocks).launches),
        )  # fmt: skip
        store.write(target.folder.timeline(target.shape, name), record)
    text = text_of(capsys, "profile", "fused", "--timeline", project=root)
    assert "Timeline: 48.0 µs while traced" in text
    assert "block 24 on SM 5 takes 38.4 µs" in text
    assert "1. **balance: persistent blocks, the longest first**" in text
    text_of(capsys, "report", "--html", project=root)
    (report,) = root.rglob("OPTIMIZATION_REPORT.md")
    assert "timeline-step-fused" in report.read_text()
    assert (report.parent / "timeline-step-fused-dark.svg").is_file()
    for name in ("timeline-step-fused-light.svg", "report.html"):
        assert f"{parent}: 12.8 µs, 8 SMs" in (report.parent / name).read_text()
