"""What to try next: a made-up kernel for every limit, the record, and the recorded ladder."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import pytest
from benchmarks import diagnosis

from answers import Capsys, both_of, error_of, json_of, not_none, text_of
from workbench.app.executor import Local
from workbench.app.show import current_capture
from workbench.app.target import find_target
from workbench.derive.factors import (
    ACTIVE,
    BUSIEST,
    CLOCK,
    ELAPSED,
    INSTRUCTIONS,
    ISSUE_RATE,
    SCHEDULERS_PER_SM,
    SMS,
    budget,
    duration_parts,
)
from workbench.derive.figures import DURATION, Figure, stall_shares
from workbench.derive.source_diff import SECTORS
from workbench.judge.advice_rules import (
    LEAST,
    Advice,
    AdvisedKernel,
    Tried,
    advise,
    subject,
    to_try,
)
from workbench.judge.findings import sentence
from workbench.judge.ladder import Ablation
from workbench.ncu.capture import Capture, KeptTables
from workbench.ncu.catalog import L1_BYTES, L2_BYTES, STALL_PREFIX, STALL_REASONS
from workbench.render import answers, as_json, in_short, markdown
from workbench.render.document.advice import CATALOGUE
from workbench.render.document.advice import to_try as told
from workbench.study.values import Work
from workbench.study.workspace import find_workspace
from workbench.words import VIRTUAL_ROOT, Change, Stage, Verdict
from workspaces import FIXTURE, GOOD, ROOT, make, recorded_ladder

# ---- captures of one launch: the metrics and samples of a kernel with one limit
SMS_OF_CARD, GHZ, SAMPLES = 132, 2.0, 10_000
DRAM_RATE, L2_RATE, L1_RATE = 4e12, 8e12, 32e12
FILE = f"{VIRTUAL_ROOT}/made/kernel.cu"
HOT = 7  # the line with all samples of the first stall reason
HOPPER = "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum"
AMPERE = "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum"


@dataclass(frozen=True)
class Kernel:
    """What its launch did, by shares: ``issue`` slots while active, ``busiest`` and ``balance`` of
    the SMs, the bandwidth of each level, the pipes. ``stalls`` are shares of the samples that could
    not go, ``excess`` is the part of its sectors beyond the ideal. The rest is as ncu
    counts it.
    """

    stalls: Mapping[str, float]
    issue: float = 0.3
    busiest: float = 0.99
    balance: float = 0.98
    dram: float = 0.05
    l2: float = 0.05
    l1: float = 0.05
    tensor: float = 0.0
    fma: float = 0.1
    xu: float = 0.05
    lsu: float = 0.1
    microseconds: float = 100.0
    blocks: int = 132 * 20
    waves: float = 20.0
    warps: float = 8.0
    occupancy: tuple[float, float] = (50.0, 50.0)
    shared_kb: float = 32.0
    requests: float = 1e6
    sectors: float = 16.0
    excess: float = 0.0
    stores: float = 0.0  # sectors, 32 a request
    conflicts: float = 0.0
    path: str = ""
    hopper: bool = True


def metrics(kernel: Kernel) -> dict[str, float]:
    """By name, as a report has them."""
    seconds = kernel.microseconds * 1e-6
    cycles = seconds * GHZ * 1e9
    active = cycles * kernel.busiest * kernel.balance
    found = {
        SMS: SMS_OF_CARD,
        SCHEDULERS_PER_SM: 4,
        INSTRUCTIONS: kernel.issue * active * SMS_OF_CARD * 4,
        ISSUE_RATE: kernel.issue,
        ACTIVE: active,
        BUSIEST: cycles * kernel.busiest,
        ELAPSED: cycles,
        CLOCK: GHZ * 1e9,
        DURATION: seconds * 1e9,
        "gpc__cycles_elapsed.max": cycles,
        "dram__bytes.sum.peak_sustained": DRAM_RATE / (GHZ * 1e9),
        "dram__cycles_elapsed.avg.per_second": GHZ * 1e9,
        "dram__bytes_read.sum": kernel.dram * DRAM_RATE * seconds,
        "dram__bytes_write.sum": 0.0,
        f"{L2_BYTES}.peak_sustained": L2_RATE / (GHZ * 1e9),
        "lts__cycles_elapsed.avg.per_second": GHZ * 1e9,
        f"{L2_BYTES}.per_second": kernel.l2 * L2_RATE,
        f"{L1_BYTES}.peak_sustained": L1_RATE / (GHZ * 1e9),
        f"{L1_BYTES}.per_second": kernel.l1 * L1_RATE,
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 100 * kernel.tensor,
        "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed": 100 * kernel.fma,
        "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed": 100 * kernel.xu,
        "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_elapsed": 100 * kernel.lsu,
        "launch__grid_size": kernel.blocks,
        "launch__waves_per_multiprocessor": kernel.waves,
        "launch__shared_mem_per_block": kernel.shared_kb * 1e3,
        "smsp__warps_active.avg.per_cycle_active": kernel.warps,
        "sm__warps_active.avg.pct_of_peak_sustained_active": kernel.occupancy[0],
        "sm__maximum_warps_per_active_cycle_pct": kernel.occupancy[1],
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": kernel.requests,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": kernel.requests * kernel.sectors,
        "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": kernel.stores / 32,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": kernel.stores,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": kernel.conflicts,
        **{f"{STALL_PREFIX}{name}": n for name, n in samples(kernel).items()},
    }
    if kernel.hopper:
        found[f"{HOPPER}.peak_sustained"] = 4096.0 * SMS_OF_CARD
    if kernel.path:
        found[HOPPER if kernel.path == "wgmma" else AMPERE] = 1e9
    return found


def samples(kernel: Kernel) -> dict[str, float]:
    """Stall reason to its samples, issuing warps among them."""
    issuing = SAMPLES * kernel.issue
    waiting = {name: (SAMPLES - issuing) * part for name, part in kernel.stalls.items()}
    return {"selected": issuing, **waiting}


def capture(kernel: Kernel, without: Collection[str] = (), launches: int = 1) -> Capture:
    """``without`` are metrics that it lacks, by the start of their names."""
    known = {
        name: value
        for name, value in metrics(kernel).items()
        if not any(name.startswith(start) for start in without)
    }
    sampled = {} if STALL_PREFIX in without else samples(kernel)
    lines = [(FILE, HOT + at, reason, value) for at, (reason, value) in enumerate(_waits(sampled))]
    if kernel.excess:
        sectors = kernel.requests * kernel.sectors + kernel.stores
        lines.append((FILE, HOT, SECTORS, kernel.excess * sectors))
    values = [(name, value, "") for name, value in known.items()]
    made = KeptTables("made", values, lines, [], frozenset(("samples", "instructions", SECTORS)))
    return Capture(Path("made.ncu-rep"), tuple(copy(made) for _ in range(launches)))


def _waits(sampled: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(reason, value) for reason, value in sampled.items() if reason != "selected"]


# ---- advice
HERE = ["--project", str(FIXTURE)]
STREAM = Work(flops=1e6, bytes=20e6, dtype="float32")  # as many bytes as 0.05 of the DRAM rate
PRODUCT = Work(flops=1e10, bytes=20e6, dtype="float16")
SPREAD = {"wait": 0.25, "barrier": 0.25, "long_scoreboard": 0.25, "short_scoreboard": 0.25}
GLOBAL = {"long_scoreboard": 0.9, "wait": 0.1}


def given(kernel: Kernel, work: Work | None = STREAM, launches: int = 1) -> tuple[Advice, ...]:
    first = not_none(to_try(advise(subject(capture(kernel, launches=launches), work=work))))
    return first


LARGE = dataclasses.replace(STREAM, bytes=160e6)
LIMITS: list[tuple[Kernel, Work | None, str]] = [
    (Kernel(SPREAD, busiest=0.4, microseconds=3.0), STREAM, "launch/early"),
    (Kernel(SPREAD, blocks=40, waves=0.1, balance=0.3, warps=8.0), STREAM, "grid/split"),
    (Kernel(SPREAD, blocks=140, waves=1.06, balance=0.55), STREAM, "tail/tail"),
    (Kernel(SPREAD, balance=0.6), STREAM, "imbalance/balance"),
    (Kernel(GLOBAL, dram=0.98), Work(1e6, 0.98 * 4e8, "float16"), "memory.dram/fuse"),
    (Kernel(GLOBAL, dram=0.92), STREAM, "memory.dram/reuse"),
    (Kernel(GLOBAL, l2=0.85, shared_kb=1.0, sectors=4.0), STREAM, "memory.l2/tile-shared"),
    (Kernel(GLOBAL, l2=0.85), STREAM, "memory.l2/reuse"),
    (
        Kernel(GLOBAL, dram=0.7, excess=0.8, sectors=32.0),
        Work(1e6, 0.68 * 4e8, "float16"),
        "memory.sectors/coalesce",
    ),
    (
        Kernel({"short_scoreboard": 0.5, "mio_throttle": 0.5}, conflicts=132 * 1.2e5),
        STREAM,
        "memory.shared/swizzle",
    ),
    (Kernel({"math_pipe_throttle": 1.0}, tensor=0.88, path="wgmma"), PRODUCT, "pipe.tensor/narrow"),
    (Kernel({"math_pipe_throttle": 0.6, "wait": 0.4}, xu=0.75), STREAM, "pipe.xu/other-pipe"),
    (Kernel({"wait": 0.7, "long_scoreboard": 0.3}, issue=0.6, fma=0.5), PRODUCT, "pipe.fma/tensor"),
    (
        Kernel({"wait": 0.2, "gmma": 0.2, "short_scoreboard": 0.6}, tensor=0.45, xu=0.4),
        PRODUCT,
        "pipe.tensor/overlap",
    ),
    (Kernel({"wait": 1.0}, issue=0.85, fma=0.3), STREAM, "issue/less-work"),
    (Kernel(GLOBAL, shared_kb=1.0, l1=0.5), STREAM, "latency.long_scoreboard/tile-shared"),
    (
        Kernel(GLOBAL, shared_kb=1.0, sectors=2.0),
        dataclasses.replace(STREAM, bytes=160e6 / 3),
        "latency.long_scoreboard/vector",
    ),  # a few passes by narrow loads
    (Kernel(GLOBAL, shared_kb=1.0), LARGE, "latency.long_scoreboard/overlap"),
    (
        Kernel(GLOBAL, shared_kb=1.0, sectors=4.0),
        LARGE,
        "latency.long_scoreboard/vector",
    ),  # narrow loads of a stream
    (Kernel(GLOBAL, sectors=4.0), LARGE, "latency.long_scoreboard/vector"),  # narrow loads of tiles
    (
        Kernel(GLOBAL, sectors=4.0, dram=0.7, issue=0.2),
        Work(1e6, 0.7 * 4e8, "float16"),
        "latency.long_scoreboard/vector",
    ),  # a stream near the bandwidth, by narrow loads
    (Kernel(GLOBAL), STREAM, "latency.long_scoreboard/async-copy"),
    (Kernel(GLOBAL, tensor=0.1, path="wgmma"), PRODUCT, "latency.long_scoreboard/bulk-copy"),
    (Kernel({"barrier": 0.8, "wait": 0.2}), STREAM, "latency.barrier/barriers"),
    (Kernel({"wait": 1.0}), STREAM, "latency.wait/overlap"),
    (Kernel({"dispatch_stall": 0.7, "wait": 0.3}), STREAM, "latency.dispatch_stall/operands"),
    (Kernel({"gmma": 0.8, "wait": 0.2}, tensor=0.4, path="wgmma"), PRODUCT, "latency.gmma/overlap"),
    (
        Kernel({"no_instructions": 0.6, "branch_resolving": 0.2, "wait": 0.2}),
        STREAM,
        "latency.no_instructions/smaller-code",
    ),
    (
        Kernel(SPREAD, warps=1.0, waves=0.25, blocks=132, occupancy=(6.0, 25.0)),
        STREAM,
        "latency.warps/split",
    ),
    (
        Kernel(dict.fromkeys(("wait", "barrier", "drain", "sleeping", "misc"), 0.2), warps=2.5),
        STREAM,
        "latency.warps/warps",
    ),
]


@pytest.mark.parametrize(("kernel", "work", "expected"), LIMITS, ids=[row[2] for row in LIMITS])
def test_every_limit_has_its_first_advice(kernel: Kernel, work: Work | None, expected: str) -> None:
    found = given(kernel, work)
    assert found[0].id == expected, [(one.id, one.saved, one.sure) for one in found]
    assert len({one.change for one in found}) == len(found) <= 3
    assert all(0.03 <= one.saved < 1 for one in found)


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (
            Kernel({"drain": 1.0}, requests=0.0, stores=8e6, excess=0.875),
            "88 % of the sectors are more than its data needs, most of them written",
        ),
        (
            Kernel(GLOBAL, sectors=32.0, excess=0.8),
            "80 % of the sectors are more than its data needs, most of them read",
        ),
        (
            Kernel(GLOBAL, sectors=32.0, stores=32e6, excess=0.6),
            "60 % of the sectors are more than its data needs",
        ),
    ],
)
def test_excess_sectors_are_a_share_of_loads_and_stores(kernel: Kernel, told: str) -> None:
    (found,) = (one for one in given(kernel, None) if one.change == Change.COALESCE)
    assert sentence(found.why).partition(";")[0] == told


def test_several_launches_are_fused_first() -> None:
    assert given(Kernel(SPREAD, busiest=0.6), launches=3)[0].id == "launch/fuse"


def test_the_line_that_waits_is_named_with_its_share() -> None:
    (first, *_) = given(Kernel({"long_scoreboard": 0.75, "wait": 0.25}))
    assert first.spot is not None
    assert (first.spot.file, first.spot.line) == (FILE, HOT)
    assert first.spot.share == pytest.approx(0.75)
    (first, *_) = given(Kernel(SPREAD, balance=0.6))
    assert first.spot is None  # no line makes SMs unequal


def test_floats_go_to_the_tensor_cores_at_a_price() -> None:
    kernel = Kernel({"wait": 0.7, "long_scoreboard": 0.3}, issue=0.6, fma=0.5)
    halves = given(kernel, PRODUCT)[0]
    floats = given(kernel, dataclasses.replace(PRODUCT, dtype="float32"))[0]
    assert halves.id == floats.id == "pipe.fma/tensor"
    assert floats.expected < halves.expected
    assert "TF32" in sentence(floats.why)
    doubles = given(kernel, dataclasses.replace(PRODUCT, dtype="float64"))
    assert Change.TENSOR not in [one.change for one in doubles]


def test_where_the_study_says_no_work_the_executed_operations_speak() -> None:
    """As of a file that is tried: products are then a guess."""
    work = Work(flops=0, bytes=PRODUCT.bytes, dtype="float16")
    kernel = Kernel({"wait": 0.7, "long_scoreboard": 0.3}, issue=0.6, fma=0.5)
    bare = subject(capture(kernel), work=work)
    many = dataclasses.replace(bare, executed=PRODUCT.flops)
    few = dataclasses.replace(bare, executed=10 * PRODUCT.bytes)
    (tensor,) = [one for one in advise(many) or () if one.change == Change.TENSOR]
    assert (
        sentence(tensor.why)
        == "500 FLOP a byte, none on the tensor cores; if these are products of matrices"
    )
    assert tensor.expected < given(kernel, PRODUCT)[0].expected
    for other in (few, bare):
        assert Change.TENSOR not in [one.change for one in advise(other) or ()]


@pytest.mark.parametrize(
    ("study", "variant", "first"),
    [
        ("attention", "baseline", ["tile-shared", "split", "reuse"]),
        ("attention", "fix1", ["split", "tensor", "overlap"]),
        ("softmax", "baseline", ["reuse", "overlap", "barriers"]),
        ("softmax", "fused", ["overlap", "warps", "registers"]),
        ("transpose", "baseline", ["coalesce", "vector"]),
        ("transpose", "copy", ["narrow", "overlap", "vector"]),
    ],
)
def test_a_kernel_that_somebody_brings(study: str, variant: str, first: list[str]) -> None:
    """Its capture alone, and of the work the bytes alone: no ladder, no record, no operations."""
    target = find_target(Local(), FIXTURE, study, None)
    work = target.study.module.work(target.study.shapes[target.shape])
    bare = dataclasses.replace(work, flops=0)
    found = to_try(advise(subject(current_capture(target, variant)[2], work=bare)))
    assert [one.change for one in found or ()] == first


def test_at_the_bandwidth_the_room_that_is_left_is_told_first() -> None:
    kernel = capture(Kernel(GLOBAL, dram=0.8))
    found = not_none(advise(subject(kernel, work=Work(1e6, 0.8 * 4e8, "float32"))))
    text = markdown.section(told(found))
    assert (
        "DRAM is at 80.0 % of the theoretical bandwidth: what moves as many bytes gains 1.25x"
        in text
    )
    assert text.index("DRAM is at") < text.index("1. **")
    again = given(Kernel(GLOBAL, dram=0.8), Work(1e6, 0.4 * 4e8, "float32"))
    assert "DRAM is at" not in markdown.section(told(again))


@pytest.mark.parametrize(("study", "variant"), [("attention", "fix7"), ("moe", "bulk")])
def test_warps_that_compute_and_fetch_are_specialised(study: str, variant: str) -> None:
    """As the next step of the ladder does."""
    target = find_target(Local(), ROOT, study, None)
    known = subject(current_capture(target, variant)[2], work=target.study.work(target.shape))
    assert Change.SPECIALISE in [one.change for one in not_none(to_try(advise(known)))]
    done = dataclasses.replace(known, specialised=True)
    assert Change.SPECIALISE not in [one.change for one in not_none(advise(done))]
    assert Change.BULK_COPY not in [one.change for one in not_none(advise(known))]
    without = dataclasses.replace(known, paths={})
    assert Change.SPECIALISE not in [one.change for one in not_none(advise(without))]


def test_what_only_the_caller_can_do_is_last_and_no_next_command() -> None:
    stream = Work(1e6, 0.98 * 4e8, "float16")
    (fuse,) = not_none(advise(subject(capture(Kernel(GLOBAL, dram=0.98)), work=stream)))
    assert fuse.is_callers
    other = dataclasses.replace(fuse, sure=0.5, saved=LEAST, change=Change.NARROW)
    assert to_try((fuse, other)) == (other, fuse)
    ladder = recorded_ladder()
    told = in_short.step(ladder, dataclasses.replace(ladder.rows[0], advice=(fuse,)))
    assert told["stop"] is True
    assert "only its caller can fuse it" in str(told["why_stop"])


def test_narrow_accesses_reach_the_rest_of_the_bandwidth() -> None:
    work = Work(1e6, 0.84 * 4e8, "float16")
    narrow = given(Kernel({"drain": 1.0}, dram=0.84, sectors=2.0), work)[0]
    assert narrow.change == Change.VECTOR
    assert "16 % of DRAM's bandwidth is left" in sentence(narrow.why)
    busy = given(Kernel({"wait": 1.0}, dram=0.84, issue=0.7), work)
    assert Change.LESS_WORK not in [one.change for one in busy]


def test_a_limit_is_told_once() -> None:
    found = given(Kernel(GLOBAL, shared_kb=1.0, sectors=2.0), Work(1e6, 160e6 / 3, "float32"))
    assert {one.limit.id for one in found} == {"latency.long_scoreboard"}
    text = markdown.section(told(found))
    assert text.count("long scoreboard stalls take") == 1
    assert text.count("Limit: as 1.") == 2


def test_the_metrics_that_are_cited_add_up_to_the_share() -> None:
    stalls = {"mio_throttle": 0.54, "short_scoreboard": 0.06, "wait": 0.4}
    found = [one for one in given(Kernel(stalls)) if "mio_throttle" in one.limit.metric]
    limit = found[0].limit
    assert limit.metric.count("issue_stalled_") == 2
    assert limit.metric.startswith("smsp__pcsamp_warps_issue_stalled_mio_throttle + ")
    assert limit.value / 100 == pytest.approx(limit.share, abs=0.02)
    text = markdown.section(told(found))
    assert "throttle and short scoreboard stalls take" in text.lower()


def test_what_limits_next_caps_the_gain() -> None:
    alone = given(Kernel(GLOBAL, issue=0.2))[0]
    crowded = given(Kernel(GLOBAL, issue=0.2, l2=0.55))[0]
    assert alone.id == crowded.id == "latency.long_scoreboard/async-copy"
    assert alone.saved == pytest.approx(0.99 * 0.8 * 0.9)
    assert crowded.saved == pytest.approx(1 - 0.55)
    assert sentence(crowded.why).endswith("L2 would be the next limit")


def test_a_kernel_at_the_bandwidth_has_no_latency_to_hide() -> None:
    work = Work(1e6, 0.98 * 4e8, "float16")
    found = given(Kernel({"long_scoreboard": 1.0}, dram=0.98), work)
    assert [one.limit.stage for one in found] == [Stage.MEMORY]


def collected(kernel: Kernel, *without: str, work: Work | None = STREAM) -> list[str] | None:
    found = advise(subject(capture(kernel, without), work=work))
    return None if found is None else [one.id for one in found]


def test_nothing_is_advised_where_nothing_was_collected() -> None:
    both = {"long_scoreboard": 0.5, "short_scoreboard": 0.5}
    bad = Kernel(both, busiest=0.6, balance=0.5, conflicts=132 * 1e5, excess=0.8)
    every = not_none(collected(bad))
    assert {each.split("/")[0].split(".")[0] for each in every} >= {"launch", "latency", "memory"}
    levels = ("dram__", "derived__", "lts__")
    assert collected(bad, BUSIEST, *levels) is None
    unsampled = collected(bad, STALL_PREFIX) or []
    assert unsampled
    assert not [each for each in unsampled if each.startswith("latency.") and "warps" not in each]
    unbalanced = collected(bad, BUSIEST) or []
    assert not [each for each in unbalanced if each.startswith(("launch", "imbalance", "latency"))]
    assert "memory.shared/swizzle" in every
    assert "memory.shared/swizzle" not in (collected(bad, "l1tex__data_bank") or [])
    assert collected(Kernel(SPREAD, xu=0.9), "sm__inst_executed_pipe_xu") == [
        each for each in collected(Kernel(SPREAD)) or [] if not each.startswith("pipe.xu")
    ]


def with_megabytes(stalls: dict[str, float], **values: float) -> list[str]:
    """What is advised of a kernel with some figures, in MB."""
    one = subject(capture(Kernel(stalls)), work=STREAM)
    more = {name: Figure(name, name, value, "MB", name) for name, value in values.items()}
    found = advise(dataclasses.replace(one, figures={**one.figures, **more}))
    return [each.id for each in found or ()]


def test_spilled_registers_are_advised_by_their_share_of_the_bytes() -> None:
    most = {"global_read": 100.0, "global_write": 100.0}
    spilled = with_megabytes(GLOBAL, **most, local_read=300.0, local_write=300.0)
    assert "memory.local/registers" in spilled
    assert "memory.local/registers" not in with_megabytes(GLOBAL, **most, local_read=2.0)
    assert "memory.local/registers" not in with_megabytes(GLOBAL, local_read=0.0)


def test_atomics_are_what_reaches_l2_beside_stores() -> None:
    stalls = {"lg_throttle": 0.8, "wait": 0.2}
    sent = {"l1_to_l2": 100.0, "local_write": 0.0}
    reduced = "memory.atomics/reuse"
    assert reduced in with_megabytes(stalls, **sent, global_write=1.0, bulk_read=0.0)
    assert reduced not in with_megabytes(stalls, **sent, global_write=99.0, bulk_read=0.0)
    assert reduced not in with_megabytes(stalls, **sent, global_write=1.0, bulk_read=50.0)
    assert reduced not in with_megabytes(stalls, **sent, global_write=1.0)


def test_without_the_work_nothing_is_said_of_it() -> None:
    product = Kernel({"wait": 1.0}, issue=0.6, fma=0.5)
    assert "pipe.fma/tensor" in (collected(product, work=PRODUCT) or [])
    assert "pipe.fma/tensor" not in (collected(product, work=None) or [])
    assert "latency.long_scoreboard/tile-shared" not in (
        collected(Kernel(GLOBAL, shared_kb=1.0, l1=0.5), work=None) or []
    )


def test_told_in_words() -> None:
    bare = AdvisedKernel(figures={}, budget=None, used={})
    assert advise(bare) is None
    assert markdown.section(told(None)) == "## What to try next\n\nnot collected"
    nothing = "nothing in the capture promises 3.0 % of the duration"
    idle = f"## What to try next after `a`\n\n{nothing}"
    assert markdown.section(told((), after="a")) == idle
    text = markdown.section(told(given(Kernel(GLOBAL, issue=0.2))))
    assert text.startswith("## What to try next\n\n1. **asynchronous copies, a ring of tiles**: ")
    assert "Limit: latency; long scoreboard stalls take 71 %" in text
    assert "`kernel.cu:7`, 90 % of the stall time" in text
    assert "Tried here" not in text


def test_the_budget_is_the_time_of_the_busiest_sm() -> None:
    made = capture(Kernel({"wait": 0.5, "barrier": 0.5}, issue=0.4, busiest=0.9, balance=0.5))
    parts = not_none(duration_parts(made.metrics))
    found = not_none(budget(parts, {**stall_shares(made.metrics), "not_selected": 0.3}))
    assert found.head_tail + found.issuing + found.waiting == pytest.approx(1.0)
    assert sum(found.waits.values()) == pytest.approx(found.waiting) == pytest.approx(0.9 * 0.6)
    assert found.waits.keys() == {"wait", "barrier"}
    assert found.imbalance == pytest.approx(0.9 * 0.5)


def test_the_catalogue_is_whole() -> None:
    assert set(CATALOGUE) == set(Change)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", change) for change in Change)
    unheard = {"selected", "not_selected", "misc", "sleeping"}  # no kind of change of their own
    alone = {
        reason: {one.limit.stage for one in given(Kernel({reason: 1.0}, warps=9.0))}
        for reason in STALL_REASONS
        if reason not in unheard
    }
    assert all(alone.values()), [reason for reason, stages in alone.items() if not stages]


def test_what_was_tried_here_and_rejected_stands_last() -> None:
    first, *others = given(Kernel(GLOBAL, issue=0.2))[:3]
    failed = dataclasses.replace(first, tried=(Tried("fix1", Verdict.SLOWER),))
    assert to_try((failed, *others)) == (*others, failed)
    assert "Tried here: `fix1` slower" in markdown.section(told((failed,)))


@pytest.fixture(scope="module")
def ladder() -> Ablation:
    return recorded_ladder()


def test_every_recorded_variant_under_four_kilobytes(ladder: Ablation) -> None:
    rows = [row for row in ladder.everything if row.capture]
    assert len(rows) > 25
    for row in rows:
        text = as_json.dumps(answers.advised(ladder, row))
        data = json.loads(text)
        assert len(text.encode()) < 4096, row.variant
        assert len(data["advice"]) <= 3
        for one in data["advice"]:
            assert one["id"].endswith(f"/{one['change']}")
            assert one["line"] is None or (FIXTURE / one["line"]["file"]).is_file()
    assert ladder.row("fix3").advice is None


def test_what_is_advised_on_the_recorded_ladder(ladder: Ablation) -> None:
    first = {
        row.variant: [one.id for one in to_try(row.advice) or ()]
        for row in ladder.everything
        if row.advice
    }
    assert first["baseline"][0] == "latency.long_scoreboard/tile-shared"
    assert first["fix1"][:2] == ["pipe.fma/tensor", "grid/split"]
    assert first["fix6"][0] == "latency.long_scoreboard/bulk-copy"
    assert all("registers" not in each for ids in first.values() for each in ids)


def test_the_verb_prints_the_list(capsys: Capsys) -> None:
    text = text_of(capsys, "advise", "fix6", *HERE)
    assert "## What to try next after `fix6`" in text
    assert "Tried here" not in text, "fix7, the only step from here, was kept"
    assert "`fix6.cu:24`" in text


def test_the_verb_prints_json(capsys: Capsys) -> None:
    data = json_of(capsys, "advise", "fix7", "--shape", "b4h16s2048d128", *HERE)
    assert (data["schema_version"], data["shape"]) == (as_json.VERSION, "b4h16s2048d128")


@pytest.mark.parametrize(
    ("name", "code", "message", "hint"),
    [
        ("fix3", 3, "fix3 has no capture", "workbench profile fix3"),
        ("fix66", 2, "unknown variant 'fix66'", "'fix6'"),
    ],
)
def test_what_has_no_capture_ends_in_a_hint(
    name: str, code: int, message: str, hint: str, capsys: Capsys
) -> None:
    out, err = both_of(capsys, "advise", name, *HERE, code=code)
    assert out == ""
    assert message in err
    assert hint in err.split("hint:")[1]


def test_a_kind_that_is_none_ends_in_a_hint(tmp_path: Path, capsys: Capsys) -> None:
    make(tmp_path, {"baseline": GOOD, "fix1": GOOD})
    path = tmp_path / "ablations" / "scale" / "ablation.toml"
    path.write_text(path.read_text() + 'kind = "vektor"\n')
    err = error_of(capsys, "list", project=tmp_path)
    assert "'step 'fix1'.kind': invalid enum value 'vektor'" in err
    assert "vector" in err.split("hint:")[1]
    path.write_text(path.read_text().replace("vektor", "vector"))
    assert find_workspace(tmp_path).study("scale").ladder.steps[1].kind == Change.VECTOR


@pytest.mark.slow
def test_the_docs_have_what_is_advised_of_planted_faults(capsys: Capsys) -> None:
    diagnosis.main()
    tables = capsys.readouterr().out.split("\n\n")
    files = (ROOT / "docs" / "advice.md", ROOT / "benchmarks" / "planted" / "README.md")
    page = "".join(file.read_text() for file in files)
    missing = [part for part in tables if part.strip() not in page]
    assert not missing, "`python -m benchmarks.diagnosis` prints what the pages lack"
