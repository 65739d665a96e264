"""What is told on stderr while something is measured."""

from __future__ import annotations

import pytest

from answers import Capsys
from handmade import built_kernel
from workbench.cli.progress import Progress
from workbench.run.protocol import (
    Built,
    Captured,
    Checked,
    ErrorText,
    Event,
    Failed,
    Start,
    WithoutNumber,
)
from workbench.words import CheckResult, Phase


def checked(variant: str, shape: str, status: CheckResult, error: float | None = None) -> Checked:
    why = "head dimension 64" if status == CheckResult.UNSUPPORTED else ""
    return Checked(
        variant=variant, shape=shape, status=status, why=why, max_abs=error, relative=None
    )


def test_the_shapes_of_a_variant_are_told_in_one_line(capsys: Capsys) -> None:
    right, unsupported = CheckResult.CORRECT, CheckResult.UNSUPPORTED
    wrong = Checked(
        variant="fix2", shape="sink", status=CheckResult.WRONG, why="too far", max_abs=0.5,
        relative=None,
    )  # fmt: skip
    hangs = Failed(variant="fix3", phase=Phase.CHECK, error=ErrorText(kind="", message="hangs"))
    events: list[Event] = [
        Start(variant="fix1", phase=Phase.CHECK),
        checked("fix1", "large", right, 0.0011),
        checked("fix1", "ragged", right, 0.0019),
        checked("fix1", "wide", unsupported),
        checked("fix2", "large", right, 0.001),
        wrong,
        checked("fix3", "large", unsupported),
        checked("fix3", "wide", unsupported),
        hangs,
        checked("fix4", "large", unsupported),
    ]
    with Progress() as progress:
        for event in events:
            progress(event)
    assert capsys.readouterr().err.splitlines() == [
        "checked fix1: correct at 2 shapes (max error 0.0019), unsupported at 1",
        "checked fix2 at large: correct, max error 0.001",
        "checked fix2 at sink: wrong, max error 0.5: too far",
        "checked fix3: unsupported at 2 shapes",
        "failed fix3 (check): hangs",
        "checked fix4 at large: unsupported: head dimension 64",
    ]


def test_what_was_profiled_in_vain_or_twice_is_not_counted(capsys: Capsys) -> None:
    fails = Failed(variant="fix1", phase=Phase.CAPTURE, error=ErrorText(kind="", message="no"))
    again = [Captured(variant="fix2"), Captured(variant="fix2")]
    lost = WithoutNumber(variant="fix2", metrics=2)
    events: list[Event] = [Captured(variant="fix1"), fails, *again, lost]
    with Progress(captures=2) as progress:
        for event in events:
            progress(event)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "profiled fix1 (1 of 2)"
    assert told[1:4] == ["failed fix1 (capture): no", *["profiled fix2 (1 of 1)"] * 2]
    assert told[4] == "fix2: ncu collected 2 metrics without a number (NaN)"


@pytest.mark.parametrize(
    ("registers", "told"),
    [
        ((20,), "20 registers"),
        ((128, 128, 128), "3 kernels, 128 registers"),
        ((168, 96), "2 kernels, 96 to 168 registers, 2 warnings"),
    ],
)
def test_kernels_are_told_together(registers: tuple[int, ...], told: str, capsys: Capsys) -> None:
    kernels = tuple(built_kernel(registers=count, source="fix1.cu") for count in registers)
    warnings = ("one", "two") if "warnings" in told else ()
    with Progress() as progress:
        progress(Built(variant="fix1", arch="sm_90a", kernels=kernels, warnings=warnings))
    assert capsys.readouterr().err == f"built fix1 for sm_90a: {told}\n"
