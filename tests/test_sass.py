"""SASS: its costs are those of the lines, and no name that ptxas chose makes a difference."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from workbench.cli import main
from workbench.commands.target import find_target
from workbench.derive.diff.costs import line_costs
from workbench.derive.sass import blocks, mix
from workbench.derive.sass.listing import Costed, Listing, listing
from workbench.errors import BadCapture
from workbench.evidence import frames
from workbench.ncu import cache
from workbench.ncu.cache import Kept, tables_of
from workbench.ncu.capture import Capture, Decoded
from workbench.ncu.captures import Captures
from workbench.ncu.disassembly import packed, unpacked
from workbench.ncu.instructions import BRANCHES
from workbench.ncu.reader import actions
from workspaces import ROOT, recorded_captures, recorded_report

SHOWN = "b2h8s512d64"
CAUSAL = "b4h16s2048d128-causal"


@lru_cache
def captures(shape: str) -> Captures:
    return Captures(find_target(ROOT, None, shape).evidence())


def capture(shape: str, variant: str) -> Capture:
    found = captures(shape).of(variant)
    assert found is not None
    return found


def listed(variant: str, shape: str = SHOWN) -> Listing:
    found = capture(shape, variant)
    return listing(found.code, found.metrics)


@pytest.mark.parametrize(("shape", "variant"), recorded_captures())
def test_the_instructions_of_a_line_cost_what_the_line_does(shape: str, variant: str) -> None:
    found = capture(shape, variant)
    costs = line_costs(found.lines, found.metrics, found.collected)
    mine = listing(found.code, found.metrics)
    assert mine.complete
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


@pytest.mark.parametrize(("shape", "variant"), recorded_captures())
def test_executions_are_those_that_ncu_counted(shape: str, variant: str) -> None:
    metrics = capture(shape, variant).metrics
    counted = metrics.loc[metrics["metric"] == "smsp__inst_executed.sum", "value"].sum()
    found = listed(variant, shape).instructions
    # Counted in another pass: code that waits in a loop goes round it as often as it has to.
    assert sum(one.executed or 0.0 for one in found) == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize(("shape", "variant"), recorded_captures())
def test_every_opcode_has_a_class_and_every_branch_a_target_within(
    shape: str, variant: str
) -> None:
    found = listed(variant, shape).instructions
    assert {o.parsed.opcode for o in found if mix.class_of(o.parsed.opcode) == mix.OTHER} == set()
    addresses = {(one.launch, one.address) for one in found}
    for one in found:
        if one.parsed.is_a("BRA"):
            assert (one.launch, one.parsed.target) in addresses, one.sass


def test_what_is_kept_of_the_code_is_the_code() -> None:
    report = recorded_report(CAUSAL, "fix10")
    action = actions(report, f"workbench:attention/fix10/{CAUSAL}")[0]
    code = Decoded(action, report).code
    assert code is not None
    assert unpacked(json.loads(json.dumps(packed(code))), report, lambda: action) == code
    assert any("wgmma" in ptx for ptx in code.ptx)
    assert not any("0x7f" in sass and len(sass.split("0x7f")[1]) > 8 for sass in code.sass)


def test_ptx_is_read_from_the_report_when_it_is_asked_for(tmp_path: Path) -> None:
    """Of every launch its own."""
    report = recorded_report(CAUSAL, "fix10")
    kept = tmp_path / "kept.json.zst"
    read = [one.code for one, _ in tables_of(report, kept)]
    again = [one.code for one, _ in tables_of(report, kept)]
    assert len(read) > 1
    for before, after in zip(read, again, strict=True):
        assert before is not None
        assert after is not None
        assert "ptx" not in vars(after)
        assert after.ptx == before.ptx
        assert len(after.ptx) == len(after.sass)
    assert read[0] != read[-1]
    assert b"wgmma.mma_async" not in frames.whole(kept.read_bytes())


def test_ptx_is_of_the_report_that_the_tables_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy, once the first is gone; of another file in its place it is not read."""
    monkeypatch.setattr(cache, "_unpacked", {})
    first, second = tmp_path / "a.ncu-repz", tmp_path / "b.ncu-repz"
    kept = tmp_path / "kept.json.zst"
    for path in (first, second):
        shutil.copy(recorded_report(CAUSAL, "fix10"), path)
        tables_of(path, kept)
    ((found, _), *_) = tables_of(first, kept)
    ((found, _), *_) = tables_of(second, kept)
    assert found.code is not None
    first.unlink()
    second.write_bytes(b"another")
    with pytest.raises(BadCapture, match=r"b\.ncu-repz is not the file"):
        _ = found.code.ptx
    shutil.copy(recorded_report(CAUSAL, "fix10"), second)
    assert any(found.code.ptx)


def test_tables_without_code_have_no_listing() -> None:
    bare = Kept("k", [("gpu__time_duration.sum", 1000.0, "ns")], [], [], frozenset())
    found = Capture(Path("x.ncu-rep"), (bare,))
    mine = listing(found.code, found.metrics)
    assert mine.instructions == ()
    assert not mine.complete


def code(*sass: str, share: float = 0.1) -> list[Costed]:
    return [
        Costed(0, 16 * n, text, ("a.cu", 1), 32.0, 10.0, share, 1.0) for n, text in enumerate(sass)
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("FFMA R4, R5, R6, R7", "FFMA R40, R1, R2, R3"),
        ("@!P0 LDG.E.128 R4, desc[UR4][R2.64+0x10]", "@!P3 LDG.E.128 R8, desc[UR8][R6.64+0x10]"),
        ("FADD R1, R2.reuse, R3", "FADD R4, R5, R6"),
        ("@P1 BRA 0x7f0", "@P2 BRA 0x120"),
        ("BSSY B0, 0x900", "BSSY B1, 0x300"),
        ("R2UR UR4, R2", "R2UR UR9, R31"),
    ],
)
def test_names_are_no_difference(one: str, other: str) -> None:
    first, second = code(one, other)
    assert blocks.normal(first) == blocks.normal(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("LDS R4, [R2+0x10]", "LDS R4, [R2+0x20]"),
        ("FADD R1, R2, RZ", "FADD R1, R2, R3"),
        ("LDG.E.64 R4, [R2]", "LDG.E.128 R4, [R2]"),
        ("@P0 EXIT", "@!P0 EXIT"),
        ("FADD R1, R2, -R3", "FADD R1, R2, R3"),
        ("MOV R1, 0x10", "MOV R1, 0x20"),
        ("ULDC UR4, c[0x0][0x210]", "ULDC UR4, c[0x0][0x218]"),
        ("ISETP.NE.AND P0, PT, R1, R2, PT", "ISETP.NE.AND PT, P0, R1, R2, PT"),
    ],
)
def test_all_else_is_a_difference(one: str, other: str) -> None:
    first, second = code(one, other)
    assert blocks.normal(first) != blocks.normal(second)


LOOP = (
    "MOV R0, RZ",
    "LDS R4, [R2]",
    "FFMA R5, R4, R4, R5",
    "IADD3 R0, R0, 0x1, RZ",
    "@P0 BRA 0x10",
    "EXIT",
)
RENAMED = (
    "MOV R9, RZ",
    "LDS R8, [R6]",
    "FFMA R1, R8, R8, R1",
    "IADD3 R9, R9, 0x1, RZ",
    "@P1 BRA 0x10",
    "EXIT",
)
MORE = (*LOOP[:2], "BAR.SYNC 0x0", *LOOP[2:])


def test_blocks_end_at_branches_and_begin_at_targets() -> None:
    found = blocks.blocks(code(*LOOP))
    assert [block.span for block in found] == [(0, 0), (16, 64), (80, 80)]
    assert all(o.parsed.is_a(*BRANCHES) for block in found[1:] for o in block.instructions[-1:])


def test_a_kernel_with_other_registers_is_the_same() -> None:
    assert all(pair.is_same for pair in blocks.pairs(code(*LOOP), code(*RENAMED)))


def test_an_instruction_more_is_the_one_difference() -> None:
    pairs = blocks.pairs(code(*LOOP), code(*MORE))
    (changed,) = [pair for pair in pairs if not pair.is_same]
    assert pairs[0] is changed  # it has the most stall time
    differing = [row for row in changed.rows if not row.same]
    assert [(row.before, row.after and row.after.sass) for row in differing] == [
        (None, "BAR.SYNC 0x0")
    ]


def test_what_has_no_like_stands_alone_and_what_never_waits_is_left_out() -> None:
    loads = ("LDG.E R1, [R2]", "LDG.E R3, [R4]", "STG.E [R4], R1", "EXIT")
    pairs = blocks.pairs(code(*LOOP[1:4], LOOP[-1]), code(*loads))
    (gone, new) = sorted(pairs, key=lambda pair: pair.before is None)
    assert gone.after is None
    assert new.before is None
    assert blocks.pairs(code(*LOOP, share=0.0), code(*loads, share=0.0)) == []


def test_the_mix_counts_executions_and_says_what_it_does_not_know() -> None:
    found = {one.name: one for one in mix.by_class(code(*LOOP), code(*MORE))}
    assert found["synchronisation"].before == mix.Amount(0, 0.0, 0.0, 0.0)
    assert found["synchronisation"].after.executed == 32.0
    assert found["shared memory"].change == 0
    unknown = [replace(one, executed=None) for one in code(*LOOP)]
    one = next(m for m in mix.by_class(unknown, code(*MORE)) if m.name == "FP32")
    assert (one.before.executed, one.after.executed, one.change) == (None, 32.0, None)


def test_the_mix_of_two_recorded_steps_is_in_the_opcodes() -> None:
    """fix7 fetches by bulk copies what fix6's threads carried."""
    found = {
        one.name: one
        for one in mix.by_class(listed("fix6").instructions, listed("fix7").instructions)
    }
    assert found["asynchronous copies"].before.static == 0
    assert found["asynchronous copies"].after.static > 0
    assert (found["shared memory"].change or 0) < 0
    assert found["tensor"].change == 0


def test_show_lists_the_instructions_under_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "fix7", "--source", "--sass", "--top", "3"]) == 0
    told = capsys.readouterr().out
    assert "the 3 hottest lines" in told
    assert "MUFU.EX2" in told
    assert "// ex2.approx.ftz.f32" in told


def test_show_has_every_instruction_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "fix7", "--source", "--sass", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["sass"]
    assert len(told) == len(listed("fix7").instructions)
    assert {"launch", "address", "sass", "ptx", "file", "line", "executed", "stalls"} <= set(
        told[0]
    )


def test_a_library_kernel_has_its_hottest_instructions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "sdpa", "--source", "--sass", "--top", "4"]) == 0
    assert "no line is known; the 4 hottest instructions:" in capsys.readouterr().out


def test_a_diff_is_short_unless_all_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "fix6", "fix7", "--sass"]) == 0
    short = capsys.readouterr().out
    assert "| asynchronous copies |" in short
    assert "block 1, gone: " in short
    assert "--wide shows all" in short
    assert len(short.splitlines()) < 160
    assert main(["diff", "fix6", "fix7", "--sass", "--wide"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 3 * len(short.splitlines())


def test_a_diff_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "fix6", "fix7", "--sass", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["sass"]
    assert set(told) == {"classes", "opcodes", "blocks"}
    assert any(row["before"] is None for block in told["blocks"] for row in block["rows"])


def test_two_reports_of_anyone(capsys: pytest.CaptureFixture[str]) -> None:
    report = str(recorded_report(CAUSAL, "fix10"))
    assert main(["diff", report, report, "--sass", "--launch", "0:0"]) == 0
    assert "the same instructions, but for the names of registers" in capsys.readouterr().out
    assert main(["diff", report, report, "--sass"]) == 2
    assert "choose one with --kernel NAME or --launch A:B" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["show fix7 --sass", "diff fix6 fix7 --sass --source"], ids=["alone", "both"]
)
def test_options_that_make_no_sense_together(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    assert "hint: " in capsys.readouterr().err
