"""The counters testify: recorded captures of honest kernels, and timings that lie about them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import made_evidence
from answers import not_none
from made_evidence import MHZ
from made_records import ORIGIN, made_index, sessions_job
from workbench.derive.figures import figures
from workbench.derive.rooflines import counted_flops, peaks
from workbench.evidence.records import Audit, CaptureIndex, GraphNode, Series, Session, Timing
from workbench.judge.findings import Gate, sentence
from workbench.judge.time_checks import (
    Case,
    compared_gates,
    duration_gate,
    kernels_gate,
    outputs_gate,
    work_gate,
)
from workbench.judge.time_checks import cross_check_gates as gates_of
from workbench.load import VariantEvidence
from workbench.ncu.capture import METRIC_COLUMNS, Capture, ColumnTable, KeptTables
from workbench.ncu.captures import tables_of
from workbench.ncu.command import lasting_kernel, variant_module
from workbench.run.worker.loader import Loader
from workbench.study.values import Work
from workbench.words import GateState, NodeKind, Status
from workspaces import CAUSAL, recorded_capture, recorded_range

SHAPE = "b2h8s512d64"
LONG = "b4h16s2048d128"
MEASURED = {"fix7": 7.71, "fix11": 5.46, "fix14": 11.10, "sdpa": 10.19}  # µs, chained
CURRENT = dict.fromkeys(("build", "check", "timing", "capture"), Status.CURRENT)
MEMSET = GraphNode(kind=NodeKind.MEMSET)
H200 = structs.replace(ORIGIN, l2_bytes=62914560)


def attention(b: int, h: int, s: int, d: int, part: float = 1.0) -> Work:
    return Work(flops=4 * b * h * s * s * d * part, bytes=8 * b * h * s * d, dtype="float16")


WORK = {
    SHAPE: attention(2, 8, 512, 64),
    "b4h16s2048d64": attention(4, 16, 2048, 64),
    LONG: attention(4, 16, 2048, 128),
    CAUSAL: attention(4, 16, 2048, 128, 0.5),
}


@cache
def capture(variant: str, shape: str = SHAPE) -> Capture:
    return recorded_capture(shape, variant)


def nodes_of(found: Capture) -> tuple[GraphNode, ...]:
    return tuple(
        GraphNode(
            kind=NodeKind.KERNEL,
            kernel=launch.mangled,
            grid=launch.grid or (0, 0, 0),
            block=launch.block or (0, 0, 0),
        )
        for launch in not_none(found.launched)
    )


def series(variant: str, microseconds: float, mhz: float = MHZ) -> Series:
    clocks = (mhz,) * 3 if mhz else ()
    return structs.replace(made_evidence.series(variant, microseconds), mhz=clocks, around_mhz=())


def timing(
    variant: str,
    microseconds: float,
    nodes: tuple[GraphNode, ...] | None,
    mhz: float = MHZ,
    audits: tuple[Audit, ...] = (),
) -> Timing:
    one = series(variant, microseconds, mhz)
    session = Session(number=0, instances=1, series=(one,), audits=audits)
    known = {} if nodes is None else {variant: nodes}
    made = made_evidence.timing(SHAPE, {variant: microseconds})
    return structs.replace(made, nodes=known, sessions=(session,))


def index(variant: str, flags: tuple[str, ...] = ("--cache-control", "all")) -> CaptureIndex:
    return made_index(variant, SHAPE, ncu="", ncu_flags=flags, provenance=ORIGIN)


def test_a_kernel_has_one_name_in_all_processes() -> None:
    """As Numba 0.30 for CUDA mangles the same kernel of modules that are loaded anew."""
    first = "_ZN30workbench_variant_1_with_numba4siluB2v1B13cw51cXTLSUwv1E5ArrayIfE"
    later = "_ZN31workbench_variant_12_with_numba4siluB4v105B13cw51cXTLSUwv1E5ArrayIfE"
    other = "_ZN31workbench_variant_12_with_numba4gateB4v105B13cw51cXTLSUwv1E5ArrayIfE"
    assert lasting_kernel(first) == lasting_kernel(later) != lasting_kernel(other)
    torch_s = "_ZN2at6native13reduce_kernelILi128ELi4ENS0_8ReduceOpIfB2v1EEEvT1_"
    assert lasting_kernel(torch_s) == torch_s


def test_instances_are_loaded_under_names_that_numba_may_put_into_kernels(tmp_path: Path) -> None:
    """The same kernel of two instances, and of a capture, is one."""
    (tmp_path / "fix.py").write_text("def run(x):\n    return x\n")
    loader = Loader(sessions_job(), tmp_path, plain=True)
    called = [loader.load("fix[warps=8]").__module__ for _ in range(2)]
    called.append(variant_module(7, "fix[warps=8]"))
    assert len(set(called)) == 3
    mangled = [f"_ZN{len(name)}{name}4siluB2v{i}E1f" for i, name in enumerate(called)]
    assert len({lasting_kernel(name) for name in mangled}) == 1


def case(
    variant: str,
    microseconds: float | None = None,
    *,
    shape: str = SHAPE,
    nodes: tuple[GraphNode, ...] | None = (),
    flags: tuple[str, ...] = ("--cache-control", "all"),
    **more: Any,
) -> Case:
    """A recorded capture with a timing made up for it: in its own nodes and its known time."""
    found = capture(variant, shape)
    own = nodes_of(found)
    if nodes == ():
        nodes = (MEMSET, *own) if variant == "sdpa" else own
    time = MEASURED[variant] if microseconds is None else microseconds
    evidence = VariantEvidence(
        variant=variant,
        title="",
        state=CURRENT,
        correct=True,
        index=index(variant, flags),
        capture=found,
        figures=figures(found.metrics),
    )
    recorded = timing(variant, time, nodes, **more)
    return Case(evidence, recorded, WORK[shape], peaks(found.metrics))


def failed(gate: Gate) -> str:
    """What a gate says that failed."""
    assert gate.state == GateState.FAILED, gate
    return sentence(gate.why)


GOOD = (Audit(variant="fix7", outputs=16, relative=3e-4),)


@pytest.mark.parametrize("variant", MEASURED)
@pytest.mark.parametrize("flags", ["all", "none"])
def test_honest_kernels_are_borne_out(variant: str, flags: str) -> None:
    audits = (Audit(variant=variant, outputs=16),)
    gates = gates_of(case(variant, flags=("--cache-control", flags), audits=audits))
    assert {gate.name: gate.state for gate in gates} == dict.fromkeys(
        ("kernels", "duration", "work", "timed outputs"), GateState.PASSED
    ), gates


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        *((SHAPE, variant) for variant in ("baseline", "fix5", "sdpa_flash", "fa4")),
        ("b4h16s2048d64", "fix14"),
        (LONG, "fix13"),
        (CAUSAL, "fix10"),
        (CAUSAL, "sdpa"),
    ],
)
def test_every_recorded_capture_did_its_work(shape: str, variant: str) -> None:
    """At the time that ncu itself took for it, which bears itself out as well."""
    metrics = capture(variant, shape).metrics.rows("metric", "value")
    took = sum(value for metric, value in metrics if metric == "gpu__time_duration.sum")
    found = case(variant, took * 1e-3, shape=shape)
    assert work_gate(found).state == GateState.PASSED, work_gate(found)
    assert duration_gate(found).state == GateState.PASSED, duration_gate(found)
    assert kernels_gate(found).state == GateState.PASSED, kernels_gate(found)


def test_what_was_not_collected_leaves_a_gate_open() -> None:
    bare = VariantEvidence(variant="fix7", title="", state=CURRENT, correct=True)
    for gate in gates_of(Case(bare, None)):
        assert gate.state == GateState.OPEN
        assert sentence(gate.why) == "not collected"
    assert kernels_gate(case("fix7", nodes=None)).state == GateState.OPEN


def test_a_capture_made_elsewhere_bears_no_witness() -> None:
    found = case("fix7")
    elsewhere = replace(found.evidence, index=None)
    for gate in (kernels_gate, duration_gate, work_gate):
        assert gate(replace(found, evidence=elsewhere)).state == GateState.OPEN


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        (
            "another",
            "timed and not captured: quick (1 x 1 x 1 blocks of 32 x 1 x 1 threads); "
            "captured and not timed: attention_forward (8 x 16 x 1 blocks of 128 x 1 x 1 threads)",
        ),
        ("copy", "captured and not timed: attention_forward"),
        ("smaller", "timed and not captured: attention_forward (1 x 16 x 1 blocks"),
        ("twice", "timed and not captured: attention_forward"),
        ("none", "launched nothing"),
    ],
)
def test_kernels_that_only_one_of_both_saw_are_named(nodes: str, told: str) -> None:
    own = nodes_of(capture("fix7"))
    kernel = GraphNode(kind=NodeKind.KERNEL, kernel="quick", grid=(1, 1, 1), block=(32, 1, 1))
    smaller = GraphNode(kind=own[0].kind, kernel=own[0].kernel, grid=(1, 16, 1), block=own[0].block)
    timed = {
        "another": (kernel,),
        "copy": (GraphNode(kind=NodeKind.MEMCPY),),
        "smaller": (smaller,),
        "twice": own * 2,
        "none": (),
    }[nodes]
    found = case("fix7")
    empty = structs.replace(not_none(found.timing), nodes={"fix7": timed})
    assert told in failed(kernels_gate(replace(found, timing=empty)))


def test_instances_may_choose_what_they_launch_at_their_first_calls() -> None:
    """One of the ways is what was captured."""
    found = case("fix7")
    assert found.timing is not None
    own = found.timing.nodes["fix7"]
    other = (structs.replace(own[0], block=(1, 1, 1)), *own[1:])
    for first, second in ((own, other), (other, own)):
        timed = structs.replace(found.timing, nodes={"fix7": first}, ways={"fix7": (second,)})
        gate = kernels_gate(replace(found, timing=timed))
        assert gate.state == GateState.PASSED
        assert sentence(gate.why).endswith("one of 2 ways that instances chose")
    timed = structs.replace(found.timing, nodes={"fix7": other}, ways={"fix7": (other[:-1],)})
    assert kernels_gate(replace(found, timing=timed)).state == GateState.FAILED


@pytest.mark.parametrize("mhz", [MHZ, 0.0])
@pytest.mark.parametrize(
    ("variant", "microseconds", "told"),
    [
        ("fix7", 1.0, "a call takes 1.00 µs, and its launches"),
        ("fix11", 0.1, "at least"),
        ("fix14", 0.0, "at least"),
        ("sdpa", 0.5, "at least"),
        ("sdpa_flash", 0.9, "at least"),
    ],
)
def test_a_time_that_its_capture_contradicts_is_a_wrong_time(
    variant: str, microseconds: float, told: str, mhz: float
) -> None:
    assert told in failed(duration_gate(case(variant, microseconds, mhz=mhz)))


@pytest.mark.parametrize("microseconds", [9.0 - 1, 15.7, 2 * 15.7])
def test_two_launches_may_overlap(microseconds: float) -> None:
    """Of 9.0 µs the shorter, and of 15.7 both."""
    assert duration_gate(case("sdpa_flash", microseconds)).passed


def test_long_kernels_are_compared_at_one_clock() -> None:
    """fix14 at a clock a quarter below that of the capture: the same cycles, a longer time."""
    assert duration_gate(case("fix14", 201.5 * 1.589 / 1.2, shape=LONG, mhz=1200.0)).passed
    assert failed(duration_gate(case("fix14", 201.5 / 2.5, shape=LONG, mhz=1589.0)))


def test_a_time_in_a_stream_leaves_the_kernels_open() -> None:
    found = case("fix7")
    waits = structs.replace(series("fix7", 7.71), unchecked=True, refused_at="fix7.py:12")
    held = Session(number=0, instances=1, series=(waits,))
    timed = structs.replace(not_none(found.timing), method=2, sessions=(held,))
    streamed = replace(found, timing=timed)
    assert kernels_gate(streamed).state == GateState.OPEN
    told = sentence(kernels_gate(streamed).why)
    assert "waits for the GPU at fix7.py:12: its time, in a stream, is unchecked" in told


def test_a_ratio_over_a_wrong_time_is_wrong() -> None:
    assert list(compared_gates([case("sdpa"), case("fix7")])) == []
    (gate,) = compared_gates([case("sdpa", 0.5), case("fix7")])
    assert failed(gate).startswith("sdpa has a wrong time: a call takes 0.50 µs")


def test_a_step_gains_nothing_over_a_parent_that_was_slowed() -> None:
    """As by a slower kernel in the graph of the parent, 4.09 times; not by what ncu cannot see."""
    (gate,) = compared_gates([case("sdpa"), case("fix7", 4.09 * MEASURED["fix7"])])
    told = failed(gate)
    assert told.startswith("fix7 has a wrong time: a call takes 31.53 µs, and its launches")
    assert told.endswith("µs it may be")
    assert [*compared_gates([case("fix7", 1.2 * MEASURED["fix7"])])] == []
    unseen = (*nodes_of(capture("fix7")), MEMSET)
    assert [*compared_gates([case("fix7", 31.5, nodes=unseen)])] == []


def test_a_capture_that_did_less_than_the_work_is_named() -> None:
    found = case("fix7")
    more = Work(flops=2 * WORK[SHAPE].flops, bytes=WORK[SHAPE].bytes, dtype="float16")
    assert "operations are missing" in failed(work_gate(replace(found, work=more)))
    bytes_missing = Work(flops=0, bytes=3 * WORK[SHAPE].bytes, dtype="float16")
    assert "bytes through L2 are missing" in failed(work_gate(replace(found, work=bytes_missing)))
    beside = timing("fix7", 7.7, (MEMSET, *nodes_of(capture("fix7"))))  # which ncu cannot see
    gate = work_gate(replace(found, work=bytes_missing, timing=beside))
    assert gate.state == GateState.OPEN
    assert "copies or memsets may do the others" in sentence(gate.why)
    assert work_gate(replace(found, timing=beside)).state == GateState.PASSED


def test_a_time_that_a_few_instances_make_short_is_the_one_that_is_compared() -> None:
    """As it is the one that is claimed."""
    every = [30.0, 30.0, 30.0, 1.0]
    series = tuple(
        made_evidence.series("fix7", microseconds, instance=i)
        for i, microseconds in enumerate(every)
    )
    found = case("fix7", 30.0)
    known = not_none(found.timing)
    session = structs.replace(known.sessions[0], series=series)
    odd = replace(found, timing=structs.replace(known, sessions=(session,)))
    assert odd.microseconds == pytest.approx(30 * (1 / 30) ** 0.25)
    assert found.ghz == pytest.approx(1.98)


@pytest.mark.parametrize("variant", ["fix7", "fix13", "fix14", "sdpa"])
def test_inputs_that_l2_cannot_hold_come_from_dram(variant: str) -> None:
    """101 MB of inputs, of which an L2 of 63 MB holds as much at the most."""
    nodes = nodes_of(capture(variant, LONG))
    found = case(variant, 300.0, shape=LONG, nodes=nodes)
    assert "DRAM" not in sentence(work_gate(found).why)  # the size of L2 was not collected
    for flags, least in ((("--cache-control", "none"), 0.9 * 0.375), ((), 0.9)):
        own = structs.replace(index(variant, flags), provenance=H200)
        known = replace(found, evidence=replace(found.evidence, index=own))
        gate = work_gate(known)
        assert gate.state == GateState.PASSED
        assert "1.00 times its inputs from DRAM" in sentence(gate.why)
        for share in (least - 0.03, least + 0.03):
            figures = dict(known.evidence.figures)
            figures["dram_read"] = replace(figures["dram_read"], value=share * 100.66)
            fewer = replace(known.evidence)
            fewer.__dict__["figures"] = figures
            state = GateState.PASSED if share > least else GateState.FAILED
            assert work_gate(replace(known, evidence=fewer)).state == state
            beside = timing(variant, 300.0, (MEMSET, *nodes))  # which ncu cannot see
            passes = work_gate(replace(known, evidence=fewer, timing=beside)).state
            assert passes == GateState.PASSED


def test_operations_that_ncu_cannot_tell_are_not_missing() -> None:
    """Additions of halves outside of the tensor cores are counted with conversions."""
    found = case("baseline", 1000.0)
    possible = Work(flops=1.1 * WORK[SHAPE].flops, bytes=0, dtype="float16")
    assert work_gate(replace(found, work=possible)).state != GateState.FAILED
    integers = Work(flops=100 * WORK[SHAPE].flops, bytes=0, dtype="int32")
    assert work_gate(replace(found, work=integers)).state == GateState.OPEN


def test_nothing_is_faster_than_the_card() -> None:
    """1.07 GFLOP at some 1070 TFLOP/s, the theoretical peak at 1.98 GHz, are 1 µs."""
    told = failed(work_gate(case("fix11", 0.8)))
    assert "where the GPU needs" in told
    assert "operations" in told


def test_wrong_outputs_of_timed_calls_fail() -> None:
    assert outputs_gate(case("fix7")).state == GateState.OPEN
    right = case("fix7", audits=GOOD)
    assert sentence(outputs_gate(right).why) == "16 outputs of timed calls were right"
    wrong = (*GOOD, Audit(variant="fix7", outputs=16, why="call 3 of 8: max error 1.5"))
    assert "call 3 of 8: max error 1.5" in failed(outputs_gate(case("fix7", audits=wrong)))


def test_operations_are_counted_by_kind() -> None:
    counted = not_none(counted_flops(capture("fix7").metrics))
    assert counted["tensor fp16"] == WORK[SHAPE].flops
    assert counted_flops(ColumnTable([], METRIC_COLUMNS)) is None


def test_reads_of_another_launch_do_not_shorten_the_longest() -> None:
    """A launch of 100 us reads nothing from DRAM, one of 70 us most of what flushed caches lack."""
    launches = [
        KeptTables(
            "k",
            [("gpu__time_duration.sum", 1e3 * us, "ns"), ("dram__bytes_read.sum", read, "byte")],
            *([], [], frozenset[str]()),
        )
        for us, read in ((100.0, 0.0), (70.0, 150e6))
    ]
    found = case("fix7", 40.0)
    made = Capture(Path("a.ncu-rep"), tuple(launches))
    evidence = replace(found.evidence, capture=made, figures=figures(made.metrics))
    assert failed(duration_gate(replace(found, evidence=evidence, ceilings={"dram": 3e12})))


def test_tables_kept_without_it_leave_the_kernels_open(tmp_path: Path) -> None:
    found = capture("fix7")
    kept = [
        KeptTables(x.kernel, list(x.metrics), list(x.lines), list(x.rules), x.collected)
        for x in found.launches
    ]
    old = Capture(found.path, tuple(kept))
    assert old.launched is None
    evidence = replace(case("fix7").evidence, capture=old, figures=figures(old.metrics))
    assert kernels_gate(replace(case("fix7"), evidence=evidence)).state == GateState.OPEN
    report = recorded_range(CAUSAL, "fix10")[0]
    fresh = [tables_of(report, tmp_path / "kept.json.zst")[0][0] for _ in range(2)]
    assert fresh[0].launched == fresh[1].launched
    assert isinstance(fresh[1], KeptTables)
