"""Planted changes of machine code are found and called what they are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from answers import Patch
from workbench.app.show import listing_of
from workbench.derive import code_diff
from workbench.derive.code_diff import CodeChange, CodeDiff, machine_code_diff, summary
from workbench.derive.source_diff import Listing
from workbench.ncu.disassembly import kind_of, parsed

STEP = 16
CODE = (
    "S2R R0, SR_TID.X",
    "ULDC.64 UR4, c[0x0][0x208]",
    "IMAD.WIDE R2, R0, 0x4, R2",
    "LDG.E R4, desc[UR4][R2.64]",
    "ISETP.GE.AND P0, PT, R0, 0x20, PT",
    "@P0 BRA 0x90",
    "FMUL R5, R4, 2",
    "FADD R6, R5, 1",
    "STS [R0], R6",
    "BAR.SYNC.DEFER_BLOCKING 0x0",
    "STG.E desc[UR4][R2.64], R6",
    "EXIT",
)


def listing(code: tuple[str, ...]) -> Listing:
    return listing_of([(STEP * index, text) for index, text in enumerate(code)])


def changed(diff: CodeDiff) -> dict[CodeChange, int]:
    return {change: n for change, n in diff.counts.items() if n and change != CodeChange.SAME}


def edited(index: int, *texts: str) -> tuple[str, ...]:
    return (*CODE[:index], *texts, *CODE[index + 1 :])


def inserted(index: int, text: str) -> tuple[str, ...]:
    """With the target of the branch as an assembler would move it."""
    moved = tuple(line.replace("0x90", "0xa0") for line in CODE)
    return (*moved[:index], text, *moved[index:])


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(CODE, {}, id="nothing"),
        pytest.param(edited(3, "LDG.E.CONSTANT R4, desc[UR4][R2.64]"), {"removed": 1, "added": 1}),
        pytest.param(edited(7), {"removed": 1, "target": 1}, id="one less, same address"),
        pytest.param(inserted(7, "FADD R5, R5, 1"), {"added": 1}, id="one more, branch as before"),
        pytest.param(edited(7, "FADD R7, R5, 1"), {"register": 1}, id="register"),
        pytest.param(edited(6, "FMUL R5, R4, 3"), {"constant": 1}, id="constant"),
        pytest.param(edited(1, "ULDC.64 UR4, c[0x0][0x210]"), {"constant": 1}, id="parameter"),
        pytest.param(edited(5, "@P0 BRA 0xb0"), {"target": 1}, id="target"),
        pytest.param(edited(5, "@!P0 BRA 0x90"), {"removed": 1, "added": 1}, id="condition"),
        pytest.param((CODE[0], CODE[2], CODE[1], *CODE[3:]), {"moved": 1}, id="order"),
        pytest.param(
            (*CODE[:8], CODE[9], CODE[8], *CODE[10:]),
            {"removed": 1, "added": 1, "target": 1},
            id="to another block",
        ),
    ],
)  # fmt: skip
def test_a_planted_change_is_called_what_it_is(
    after: tuple[str, ...], expected: dict[str, int]
) -> None:
    diff = machine_code_diff(listing(CODE), listing(after))
    assert changed(diff) == expected
    assert diff.is_same == (not expected)
    assert any(True for _ in diff.hunks) == (bool(expected) and "register" not in expected)
    assert [row.before.sass for row in diff.rows if row.before] == list(CODE)
    assert [row.after.sass for row in diff.rows if row.after] == list(after)


def test_codes_that_are_too_long_are_cut_where_both_have_a_line_of_their_own(
    monkeypatch: Patch,
) -> None:
    long = tuple(f"FADD R{i % 7}, R1, {i % 5}" for i in range(60))
    code = (*long, "BAR.SYNC 0x0", *long)
    other = ("MOV R1, R2", *long[:30], *long[31:], "BAR.SYNC 0x0", *long, "EXIT")
    whole = machine_code_diff(listing(code), listing(other))
    monkeypatch.setattr(code_diff, "MOST_CELLS", 500)
    cut = machine_code_diff(listing(code), listing(other))
    assert changed(whole) == {CodeChange.ADDED: 2, CodeChange.REMOVED: 1}
    assert [row.before for row in cut.rows if row.before] == list(listing(code).instructions)
    assert len([row for row in cut.rows if row.before and row.after]) > 100


def test_kinds_are_counted_and_one_in_place_of_another_is_said() -> None:
    before = ("HMMA.16816.F32 R4, R8, R12, R4",) * 512 + ("IMAD R1, R2, R3, R4",) * 170
    after = ("@P0 HGMMA.64x64x16.F32 R24, gdesc[UR16], R24",) * 64 + ("IMAD R1, R2, R3, R4",) * 2
    diff = machine_code_diff(listing(before), listing(after))
    assert summary(*diff.numbers) == "64 HGMMA in place of 512 HMMA; 168 fewer IMAD"
    assert [(kind.kind, kind.after - kind.before) for kind in diff.kinds] == [
        ("HMMA", -512), ("HGMMA", 64), ("IMAD", -168),
    ]  # fmt: skip
    assert kind_of("@!UPT UIADD3 UR4, UR4, 0x1, URZ") == "UIADD3"


def test_what_launches_of_one_kernel_cost_is_added() -> None:
    (first, *rest) = listing(CODE).instructions
    costs = [replace(first, launch=n, executed=10.0, microseconds=0.5 + n) for n in (0, 1)]
    twice = Listing((costs[0], *rest, costs[1], *(replace(cost, launch=1) for cost in rest)), 1.0)
    diff = machine_code_diff(twice, listing(CODE))
    assert diff.is_same
    first_row = diff.rows[0].before
    assert first_row
    assert (first_row.executed, first_row.microseconds) == (20.0, 2.0)


def test_labels_of_the_disassembler_become_addresses() -> None:
    text = """
.text.scale:
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/              @P0 BRA `(.L_x_1) ;
.L_x_2:
.L_x_1:
        /*0020*/                   EXIT ;
.text.other:
        /*0000*/                   BRA `(.L_elsewhere);
"""
    assert parsed(text) == {
        "scale": [(0, "S2R R0, SR_TID.X"), (16, "@P0 BRA 0x20"), (32, "EXIT")],
        "other": [(0, "BRA `(.L_elsewhere)")],
    }
    addresses = [address for address, _ in parsed(text)["scale"]]
    assert {b - a for a, b in pairwise(addresses)} == {STEP}
