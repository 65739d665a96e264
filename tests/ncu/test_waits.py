"""Which line waits, and what each instruction costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest

from answers import Capsys, Patch, error_of, not_none
from workbench.cuda.cubin import MAGIC
from workbench.derive.source_diff import Listing, line_costs, listing
from workbench.judge.advice_rules import AdvisedKernel
from workbench.ncu import places
from workbench.ncu.capture import Capture, Decoded, KeptTables, read_lines
from workbench.ncu.disassembly import counted, packed, unpacked
from workbench.ncu.places import (
    Frame,
    Instruction,
    LineEntry,
    LineTable,
    Places,
    Waits,
    instruction,
    is_library,
    line_tables,
    source_place,
    tables_in,
)
from workbench.ncu.reader import actions
from workbench.render import answers, in_short
from workspaces import (
    CAPTURES,
    CAUSAL,
    FIXTURE,
    FLUSHED,
    SHOWN,
    output_of,
    recorded_capture,
    recorded_range,
    recorded_report,
)

BARRIER = "barrier_wait("
TMA = [*((FLUSHED, variant) for variant in ("fix7", "fix10", "fix15")), (CAUSAL, "fix10")]
Place = tuple[str, int]  # a source file and a line of it


@lru_cache(maxsize=4)
def launch(shape: str, variant: str) -> Decoded:
    report, wanted = recorded_range(shape, variant)
    return Decoded(actions(report, wanted)[0], report)


def samples(shape: str, variant: str, reason: str) -> Counter[Place]:
    found: Counter[Place] = Counter()
    for file, line, counter, value in launch(shape, variant).lines:
        if counter == reason:
            found[file, line] += int(value)
    return found


def text(one: Decoded, place: Place) -> str:
    """The line, as the report has it."""
    source: str = one.action.source_files()[place[0]]
    return source.splitlines()[place[1] - 1]


@pytest.mark.parametrize(("shape", "variant"), TMA)
def test_long_scoreboard_is_charged_to_a_line_that_waits(shape: str, variant: str) -> None:
    [(place, _)] = samples(shape, variant, "long_scoreboard").most_common(1)
    assert BARRIER in text(launch(shape, variant), place)


def test_a_copy_is_waited_for_where_it_says_so() -> None:
    """cp.async.wait_group, not the __syncthreads behind it."""
    found = samples(FLUSHED, "fix5", "long_scoreboard")
    [(place, most)] = found.most_common(1)
    assert "cp.async.wait_group" in text(launch(FLUSHED, "fix5"), place)
    assert most > 2 * found[place[0], place[1] + 1]


@pytest.mark.parametrize("variant", ["fix1", "fix2[warps=12]", "fix4", "fix7", "fix11"])
def test_a_block_waits_at_its_barrier(variant: str) -> None:
    words = ("__syncthreads", "named_barrier", "wgmma_wait")
    found = samples(FLUSHED, variant, "barrier")
    one = launch(FLUSHED, variant)
    assert all(any(w in text(one, place) for w in words) for place in found), found


def test_a_warpgroup_arrives_where_it_is_told_to() -> None:
    """Samples are at the HGMMA behind the fence, under the line of an address."""
    found = samples(CAUSAL, "fix10", "warpgroup_arrive")
    assert found.total() > 100
    assert all("wgmma_fence" in text(launch(CAUSAL, "fix10"), place) for place in found)


def test_what_waits_for_its_stores_waits_at_the_end() -> None:
    """Not at the code that follows ``EXIT`` in memory, which never ran: a division's slow path."""
    [(place, _)] = samples(FLUSHED, "fix1", "drain").most_common(1)
    assert text(launch(FLUSHED, "fix1"), place).strip() in ("}", "return;")


@pytest.mark.parametrize("variant", ["baseline", "fix5", "fix10", "fix15"])
def test_no_sample_is_lost_or_made_up(variant: str) -> None:
    one = launch(FLUSHED, variant)
    total = dict(row[:2] for row in one.metrics)["smsp__pcsamp_warps_issue_stalled_wait"]
    assert sum(samples(FLUSHED, variant, "wait").values()) == total
    plain: Counter[str] = Counter()
    for _, _, counter, value in read_lines(counted(one.action)):  # without line tables
        plain[counter] += int(value)
    assert plain == Counter({c: int(sum(r[3] for r in one.lines if r[2] == c)) for c in plain})


@pytest.mark.parametrize(("shape", "variant"), TMA[-3:])
def test_without_line_tables_it_is_the_line_of_the_wait_in_the_loop(
    shape: str, variant: str
) -> None:
    """That much the disassembly says."""
    one = launch(shape, variant)
    found = read_lines(counted(one.action))
    rows = [row for row in found if row[2] == "long_scoreboard"]
    file, line, *_ = max(rows, key=lambda row: float(row[3]))
    assert BARRIER in text(one, (file, int(line))) or Path(file).name == "hopper.cuh"


# ---- inlined code --------------------------------------------------------------------------------


def of_helper(shape: str, variant: str, name: str) -> tuple[Places, list[int]]:
    """The places of a launch, and the addresses of what was inlined from a function."""
    one = launch(shape, variant)
    metric = one.action.metric_by_name("inst_executed")
    ids = metric.correlation_ids()
    pcs = [ids.as_uint64(i) for i in range(metric.num_instances())]
    found = Places(one.action, pcs, tables_in(one.path))
    return found, [pc for pc in pcs if (c := found.chain(pc)) and name in c[0].function]


def test_the_report_tells_through_which_calls_code_was_inlined() -> None:
    found, pcs = of_helper(FLUSHED, "fix10", "barrier_wait")
    chains = {tuple((f.file, f.line) for f in found.chain(pc)) for pc in pcs}
    assert len({chain[1] for chain in chains}) > 3  # places that wait
    for chain in chains:
        assert Path(chain[0][0]).name == "hopper.cuh"
        assert BARRIER in text(launch(FLUSHED, "fix10"), chain[1])


def test_a_line_of_a_helper_names_the_call_in_the_kernel_s_own_file() -> None:
    calls = Capture(Path(), (launch(FLUSHED, "fix10"),)).calls
    assert calls
    for (helper, _), call in calls.items():
        assert Path(helper).suffix == ".cuh"
        assert Path(call[0]).name == "fix10.cu"
        assert text(launch(FLUSHED, "fix10"), call)
    line = next(iter(calls))
    stalls = {"wait": {line: 1.0}}
    spot = not_none(AdvisedKernel({}, None, {}, lines=stalls, calls=calls).hottest)
    assert spot.called_at == calls[line]
    assert {
        "at": answers.place(*line),
        "called_at": answers.place(*calls[line]),
    } == in_short._place(spot)


def test_a_library_s_code_is_charged_to_the_line_that_called_it(monkeypatch: Patch) -> None:
    """As if hopper.cuh and attention.cuh were installed with the toolkit."""
    monkeypatch.setattr(places, "is_library", lambda file: file.endswith(".cuh"))
    found, pcs = of_helper(FLUSHED, "fix11", "wgmma")
    charged = {found.of(pc, "instructions") for pc in pcs}
    assert charged
    one = launch(FLUSHED, "fix11")
    assert all(Path(place[0]).name == "fix11.cu" for place in charged)
    assert all("wgmma" in text(one, place) for place in charged)


def test_a_helper_of_the_user_s_own_is_charged_as_by_ncu() -> None:
    found, pcs = of_helper(FLUSHED, "fix11", "copy_box")
    action = launch(FLUSHED, "fix11").action
    assert pcs
    assert all(found.of(pc, "instructions") == source_place(action, pc) for pc in pcs)


def test_every_launch_with_lines_has_its_line_table() -> None:
    for shape, variant in CAPTURES:
        if variant.startswith(("fix", "baseline")):
            _, pcs = of_helper(shape, variant, "")
            assert len(pcs) > 500, (shape, variant)


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/usr/local/cuda/include/cuda_fp16.hpp", True),
        ("/home/a/venv/lib/python3.12/site-packages/triton/language/standard.py", True),
        (r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v13.0\include\mma.h", True),
        ("/workbench/kernels/attention/hopper.cuh", False),
        ("/home/a/kernels/softmax.cu", False),
        ("", False),
    ],
)
def test_what_is_a_library(file: str, library: bool) -> None:
    assert is_library(file) == library


def test_a_broken_line_table_costs_the_calls_alone(tmp_path: Path) -> None:
    report = tmp_path / "broken.ncu-rep"
    report.write_bytes(MAGIC + bytes(200) + MAGIC + b"\xff" * 300 + MAGIC)
    assert tables_in(report) == []
    assert tables_in(tmp_path / "nothing.ncu-rep") == []


def test_a_report_with_too_much_of_them_is_not_kept_waiting_for(monkeypatch: Patch) -> None:
    report = recorded_range(CAUSAL, "fix10")[0]
    places._tables.cache_clear()
    monkeypatch.setattr("workbench.bounds.LINE_BYTES", 1)
    assert tables_in(report) == []
    places._tables.cache_clear()
    monkeypatch.setattr("workbench.bounds.LINES_IN", 1)
    assert tables_in(report) == []
    places._tables.cache_clear()


@pytest.mark.parametrize("damage", range(0, 400, 31))
def test_damage_in_a_line_table_ends_in_an_error_or_in_rows(damage: int) -> None:
    program = bytearray(_program())
    program[damage % len(program)] ^= 1 << damage % 8
    try:
        tables = line_tables(bytes(program), b"f\0")
    except (ValueError, IndexError):
        return
    assert all(len(table.chain(0)) < 10 for table in tables)


def _program() -> bytes:
    """Two rows: line 7, and at address 16 line 3 of ``f``, inlined at the first row."""
    header = bytes([1, 1, 256 - 5, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1]) + b"/k\0\0a.cu\0\1\0\0\0"
    rows = bytes([0, 9, 2, *bytes(8), 3, 6, 1])
    rows += bytes([0, 3, 0x90, 1, 0, 2, 16, 3, 256 - 4 & 127, 1, 2, 16, 0, 1, 1])
    body = (2).to_bytes(2, "little") + len(header).to_bytes(4, "little") + header + rows
    return len(body).to_bytes(4, "little") + body


def test_rows_and_calls_of_a_line_table() -> None:
    [table] = line_tables(_program(), b"f\0")
    assert table.chain(8) == (Frame("/k/a.cu", 7, ""),)
    assert table.chain(24) == (Frame("/k/a.cu", 3, "f"), Frame("/k/a.cu", 7, ""))


def test_a_call_that_is_inlined_into_itself_has_an_end() -> None:
    row = LineEntry(0, Frame("a.cu", 1, "f"), 1)
    assert len(LineTable((row,), [row]).chain(0)) == 1


# ---- instructions --------------------------------------------------------------------------------


def code(*lines: str) -> list[Instruction]:
    """One instruction every 16 bytes from 0x100."""
    return [instruction(0x100 + 16 * i, line) for i, line in enumerate(lines)]


def charged(lines: Sequence[str], sampled: int, counter: str = "long_scoreboard") -> int:
    """Index of the line that a sample at another is charged to."""
    return (Waits(code(*lines)).waiting_at(0x100 + 16 * sampled, counter) - 0x100) // 16


TRY = "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR10], R94"


def test_instructions_are_read() -> None:
    one = instruction(0, "@!P0  BRA 0x7f6953a1f520 ;")
    assert (one.guard, one.opcode, one.target) == ("P0", "BRA", 0x7F6953A1F520)
    assert one.predicates_read == {"P0"}
    assert instruction(0, "ISETP.NE.AND P1, PT, R2, RZ, !P3").written == {"P1"}
    assert instruction(0, "ISETP.NE.AND P1, PT, R2, RZ, !P3").predicates_read == {"P3"}
    assert instruction(0, "BRA `(.L_x_0) 0x7f69937edce0").target == 0x7F69937EDCE0
    assert instruction(0, "").opcode == ""


@pytest.mark.parametrize(
    ("lines", "sampled", "expected"),
    [
        pytest.param([TRY, "@!P0 BRA 0x100"], 1, 0, id="a loop"),
        pytest.param([TRY, "NOP", "@!P0 BRA 0x150", "FADD R0", "EXIT", TRY, "@!P0 BRA 0x150"], 2, 5,
                     id="the first try moved out of the loop"),
        pytest.param([TRY, "NOP", "@!P0 BRA 0x150", "FADD R0", "EXIT", TRY, "@!P0 BRA 0x150"], 0, 5,
                     id="the moved try itself"),
        pytest.param([TRY, "SEL R0, RZ, 0x1, P0", "NOP"], 1, 0, id="its result taken as a number"),
        pytest.param([TRY, "ISETP.NE.AND P0, PT, R2, RZ, PT", "@P0 BRA 0x100"], 2, 2,
                     id="another predicate of the name"),
        pytest.param([TRY, "NOP", "@P0 BRA 0x100", "BRA 0x120"], 2, 2,
                     id="code comes together in between"),
        pytest.param(["FADD R0, R1, R2", "@P0 BRA 0x100"], 1, 1, id="no wait at all"),
        pytest.param(["DEPBAR.LE SB0, 0x2", "BAR.SYNC 0x0"], 1, 0, id="cp.async"),
        pytest.param(["WARPGROUP.DEPBAR.LE gsb0, 0x0", "FADD R0"], 1, 1, id="wgmma waits itself"),
    ],
)  # fmt: skip
def test_who_waits(lines: list[str], sampled: int, expected: int) -> None:
    assert charged(lines, sampled) == expected


@pytest.mark.parametrize(
    ("lines", "counter", "expected"),
    [
        pytest.param(["BAR.SYNC.DEFER_BLOCKING 0x0", "IADD3 R1", "LDS R0"], "barrier", 0, id="bar"),
        pytest.param(["BAR.SYNC 0x0", "IADD3 R1", "LDS R0"], "wait", 2, id="another reason"),
        pytest.param(["BAR.SYNC 0x0", "NOP", "WARPGROUP.DEPBAR.LE gsb0"], "barrier", 2, id="own"),
        pytest.param(["BAR.SYNC 0x0", "BRA 0x100", "LDS R0"], "barrier", 2, id="not from there"),
        pytest.param(["WARPGROUP.ARRIVE", "NOP", "HGMMA R24"], "warpgroup_arrive", 0, id="fence"),
        pytest.param(["NOP", "@P0 EXIT", "LDS R0"], "drain", 1, id="stores"),
    ],
)
def test_what_waits_later_than_it_was_told_to(
    lines: list[str], counter: str, expected: int
) -> None:
    assert charged(lines, 2, counter) == expected


# ---- SASS
LISTED = [
    *((SHOWN, variant) for variant in ("baseline", "fix4", "fix7", "fix11", "sdpa_flash")),
    *((CAUSAL, variant) for variant in ("fix9", "fix10", "sdpa")),
]


def listed(variant: str, shape: str = SHOWN) -> Listing:
    found = recorded_capture(shape, variant)
    return listing(found.code, found.metrics)


@pytest.mark.parametrize(("shape", "variant"), LISTED)
def test_the_instructions_of_a_line_cost_what_the_line_does(shape: str, variant: str) -> None:
    found = recorded_capture(shape, variant)
    costs = line_costs(found.lines, found.metrics, found.collected)
    mine = listing(found.code, found.metrics)
    assert mine.duration == costs.duration
    stalls = {
        place: sum((Counter(o.stalls) for o in ones), Counter())
        for place, ones in mine.by_line.items()
    }
    for place, cost in costs.lines.items():
        assert dict(stalls.get(place, {})) == dict(cost.stalls), place
        times = [one.microseconds or 0.0 for one in mine.by_line.get(place, ())]
        assert sum(times) == pytest.approx(cost.microseconds or 0.0)
        executed = [one.executed or 0.0 for one in mine.by_line.get(place, ())]
        assert sum(executed) == pytest.approx(cost.instructions or 0.0)


@pytest.mark.parametrize(("shape", "variant"), LISTED)
def test_executions_are_those_that_ncu_counted(shape: str, variant: str) -> None:
    metrics = recorded_capture(shape, variant).metrics
    name = "smsp__inst_executed.sum"
    counted = sum(value for metric, value in metrics.rows("metric", "value") if metric == name)
    found = listed(variant, shape).instructions
    # Counted in another pass: code that waits in a loop goes round it as often as it has to.
    assert sum(one.executed or 0.0 for one in found) == pytest.approx(counted, rel=0.05)


def test_what_is_kept_of_the_code_is_the_code() -> None:
    report = recorded_report(CAUSAL, "fix10")
    action = actions(report, f"workbench:attention/fix10/{CAUSAL}")[0]
    code = not_none(Decoded(action, report).code)
    assert unpacked(json.loads(json.dumps(packed(code)))) == code
    assert not any("0x7f" in sass and len(sass.split("0x7f")[1]) > 8 for sass in code.sass)


def test_tables_without_code_have_no_listing() -> None:
    bare = KeptTables("k", [("gpu__time_duration.sum", 1000.0, "ns")], [], [], frozenset())
    found = Capture(Path("x.ncu-rep"), (bare,))
    mine = listing(found.code, found.metrics)
    assert mine.instructions == ()


def test_show_lists_the_instructions_under_their_lines() -> None:
    told = output_of(f"show fix10 --shape {CAUSAL} --source --sass --top 3")
    assert "the 3 hottest lines" in told
    assert "MUFU.EX2" in told


def test_show_has_every_instruction_as_data() -> None:
    told = json.loads(output_of("show fix7 --source --sass --json"))["sass"]
    assert len(told) == len(listed("fix7").instructions)
    assert {"launch", "address", "sass", "place", "executed", "stalls"} <= set(told[0])


def test_a_library_kernel_has_its_hottest_instructions() -> None:
    told = output_of("show sdpa --source --sass --top 4")
    assert "no line is known; the 4 hottest instructions:" in told


def test_sass_is_of_source_lines(capsys: Capsys) -> None:
    assert "hint: " in error_of(capsys, "show", "fix7", "--sass", project=FIXTURE)
