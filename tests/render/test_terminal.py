"""What a reader sees on a terminal and in a report, to the character, and while it measures."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from tools.folders import pack, unpack

from answers import Capsys, Patch, error_of, text_of
from made_ladder import ablation
from made_records import built_kernel
from workbench.cli import progress, streams
from workbench.cli.main import main
from workbench.cli.progress import Progress
from workbench.render.doc import Block, Paragraph, Table, plain
from workbench.render.document.printed_ladder import screen
from workbench.render.terminal import write
from workbench.run.protocol import Built, Captured, Checked, ErrorText, Event, Failed, Start
from workbench.words import CheckResult, Phase
from workspaces import FIXTURE, ROOT

RECORDED = ROOT / "tests" / "recorded" / "golden.txtar"
COMMANDS = {
    "ablate": ["ablate"],
    "list": ["list"],
    "check": ["check"],
    "show": ["show", "fix5"],
    "diff": ["diff", "fix4", "fix5"],
}
WIDTHS = (80, 120, 200)


@pytest.fixture
def shown(monkeypatch: Patch, tmp_path: Path) -> list[Block]:
    """The blocks that a verb shows on a terminal: it runs once for all widths."""
    blocks: list[Block] = []
    monkeypatch.setattr(streams, "on_terminal", lambda _: True)
    monkeypatch.setattr(streams, "write", lambda told, *_: blocks.extend(told))
    monkeypatch.setattr("workbench.study.workspace.Workspace.reports", lambda *_: tmp_path)
    return blocks


def assert_golden(folder: Path, name: str, text: str) -> None:
    """The text is the one that is kept; ``python -m tools.goldens`` keeps it."""
    unpack(RECORDED, folder)
    if os.environ.get("WORKBENCH_REWRITE"):
        (folder / name).write_text(text, encoding="utf-8")
        pack(RECORDED, folder)
    assert text == (folder / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_terminal_shows_what_is_on_record(
    name: str, shown: list[Block], workspace: Path, tmp_path: Path
) -> None:
    assert main([*COMMANDS[name], "--project", str(workspace)]) == 0
    for width in WIDTHS:
        written = io.StringIO()
        write(shown, Console(file=written, width=width, color_system=None, highlight=False))
        lines = [line.rstrip() for line in written.getvalue().splitlines()]
        assert max(map(cell_len, lines)) <= width
        assert_golden(tmp_path / "golden", f"{name}-{width}", "\n".join([*lines, ""]))


def test_source_is_marked_where_it_is_hot(capsys: Capsys) -> None:
    lines = text_of(capsys, "show", "fix5", "--source", project=FIXTURE).splitlines()
    hot = [line for line in lines if line.startswith(">>")]
    assert hot
    assert all(float(line[2:10].rstrip("% ")) >= 5 for line in hot)
    assert main(["show", "fix5", "--source", "--top", "4", "--project", str(FIXTURE)]) == 0
    top = capsys.readouterr().out.splitlines()[2:]
    shares = [float(line[2:10].rstrip("% ")) for line in top]
    assert len(shares) == 4
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "fix1", "--kernel", "k"], "--kernel is for reports"),
        (["show", "fix1", "--launch", "0"], "--launch is for reports"),
        (["show", "fix1", "--top", "3"], "--top is for the lines of --source"),
    ],
)
def test_an_option_is_never_ignored(arguments: list[str], message: str, capsys: Capsys) -> None:
    assert message in error_of(capsys, *arguments, project=FIXTURE)


@pytest.mark.parametrize("study", ["moe", "transpose"])
def test_the_ladder_fits_a_screen_and_ends_with_its_winner(study: str, shown: list[Block]) -> None:
    assert main(["ablate", "--study", study, "--project", str(ROOT)]) == 0
    written = io.StringIO()
    write(shown, Console(file=written, width=80, color_system=None, highlight=False))
    lines = written.getvalue().splitlines()
    assert len(lines) <= 45
    assert not any(line.rstrip().endswith("…") for line in lines)  # no change is cut inside a word
    rows, *_ = (block.rows for block in shown if isinstance(block, Table))
    assert len(rows) <= 20
    answer = shown[0]
    assert isinstance(answer, Paragraph)
    assert plain(answer.text).startswith(f"{rows[-1].key} takes ")


def test_named_steps_are_shown_and_ends_of_intervals_have_the_digits_that_decide(
    shown: list[Block],
) -> None:
    """A lower end of 1.028 is below the least speedup of 1.03, in print too."""
    steps = ("fix12", "fix11[stagger=1,polynomial=3]")
    assert main(["ablate", *steps, "--project", str(FIXTURE)]) == 0
    table, *_ = (block for block in shown if isinstance(block, Table))
    cells = {row.key: row.cells for row in table.rows}
    assert "fix12" in cells
    open_step = cells[steps[1]]
    over = open_step["speedup_over_parent"]
    assert f"{plain(over.text)} {over.note}" == "1.032x [1.028, 1.036]"
    assert open_step["variant"].short == " …polynomial=3"


def test_a_ladder_at_one_shape_may_be_longer_than_a_screen() -> None:
    found = ablation(45)
    (table,) = (each for each in screen(found, [r.variant for r in found.rows])
                if isinstance(each, Table))  # fmt: skip
    assert len(table.rows) == 46


# ---- a report
def test_the_report_of_the_transpose_is_as_before(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("workbench.study.workspace.Workspace.reports", lambda *_: tmp_path)
    assert main(["report", "--study", "transpose", "--project", str(FIXTURE)]) == 0
    text = (tmp_path / "OPTIMIZATION_REPORT.md").read_text(encoding="utf-8")
    assert_golden(tmp_path / "golden", "transpose-report.md", text)


# ---- progress
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
    events: list[Event] = [Captured(variant="fix1"), fails, *again]
    with Progress(captures=2) as progress:
        for event in events:
            progress(event)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "profiled fix1 (1 of 2)"
    assert told[1:] == ["failed fix1 (capture): no", *["profiled fix2 (1 of 1)"] * 2]


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


def test_what_is_under_way_is_told_in_a_silence(monkeypatch: Patch) -> None:
    monkeypatch.setattr(progress, "SILENT_S", 0.01)
    monkeypatch.setattr(progress, "LOOK_S", 0.01)
    said = threading.Event()

    def printed(text: str) -> str:
        if text == "checking fix1 (0 s)":
            said.set()
        return text

    monkeypatch.setattr(progress, "printable_lines", printed)
    with Progress() as hear:
        hear(Start(variant="fix1", phase=Phase.CHECK))
        assert said.wait(60)
