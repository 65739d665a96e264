"""What a reader sees on a terminal of 80, 120 and 200 columns, to the character.

``WORKBENCH_REWRITE=1 pytest tests/test_terminal.py`` writes the files under ``recorded/terminal``
again: look at what changed.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from answers import Capsys, Patch, error_of, text_of
from workbench.cli.main import main
from workbench.cli.printing import Output
from workbench.render.document.blocks import Block, Paragraph, Table, plain
from workbench.render.terminal import write
from workspaces import FIXTURE, ROOT

RECORDED = ROOT / "tests" / "recorded" / "terminal"
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
    monkeypatch.setattr(Output, "on_terminal", True)
    monkeypatch.setattr(Output, "show", lambda _, *told: blocks.extend(told))
    monkeypatch.setattr("workbench.study.workspace.Workspace.reports", lambda *_: tmp_path)
    return blocks


@pytest.mark.parametrize("name", COMMANDS)
def test_the_terminal_shows_what_is_on_record(
    name: str, shown: list[Block], workspace: Path
) -> None:
    assert main([*COMMANDS[name], "--project", str(workspace)]) == 0
    for width in WIDTHS:
        written = io.StringIO()
        write(shown, Console(file=written, width=width, color_system=None, highlight=False))
        lines = [line.rstrip() for line in written.getvalue().splitlines()]
        assert max(map(cell_len, lines)) <= width
        text = "\n".join(lines) + "\n"
        file = RECORDED / f"{name}-{width}.txt"
        if os.environ.get("WORKBENCH_REWRITE"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        assert text == file.read_text()


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
        (["show", "fix1", "--kernel", "k"], "--kernel and --launch are for reports"),
        (["show", "fix1", "--launch", "0"], "--kernel and --launch are for reports"),
        (["show", "fix1", "--top", "3"], "--top is for the lines of --source"),
    ],
)
def test_an_option_is_never_ignored(arguments: list[str], message: str, capsys: Capsys) -> None:
    assert message in error_of(capsys, *arguments, project=FIXTURE)


def test_an_empty_workspace_says_what_to_do(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "workbench.toml").touch()
    assert "a study is a folder kernels/NAME" in error_of(capsys, "list", project=tmp_path)


@pytest.mark.parametrize("study", ["attention", "moe", "softmax", "transpose", "attention_served"])
def test_the_ladder_fits_a_screen_and_ends_with_its_winner(study: str, shown: list[Block]) -> None:
    assert main(["ablate", "--study", study, "--project", str(ROOT)]) == 0
    written = io.StringIO()
    write(shown, Console(file=written, width=80, color_system=None, highlight=False))
    lines = written.getvalue().splitlines()
    assert len(lines) <= 45
    assert not any(line.rstrip().endswith("…") for line in lines)  # no change is cut inside a word
    below = [line for line in lines if line.startswith("  ")]
    assert len({line.split()[0] for line in below[1:]}) >= {"transpose": 0, "moe": 8}.get(study, 3)
    (rows,) = (block.rows for block in shown if isinstance(block, Table))
    assert len(rows) <= 20
    answer = shown[0]
    assert isinstance(answer, Paragraph)
    assert plain(answer.text).startswith(f"{rows[-1].key} takes ")


def test_named_steps_are_shown_and_ends_of_intervals_are_rounded_outwards(
    shown: list[Block],
) -> None:
    """A lower end of 1.026 is below the least speedup of 1.03, in print too."""
    assert main(["ablate", "fix12", "fix11[stagger=1,polynomial=3]", "--project", str(ROOT)]) == 0
    (table,) = (block for block in shown if isinstance(block, Table))
    cells = {row.key: row.cells for row in table.rows}
    assert "fix12" in cells
    open_step = cells["fix11[stagger=1,polynomial=3]"]
    assert plain(open_step["parent"].text) == "1.03x [1.02, 1.04]"
    assert plain(open_step["step"].text) == " …polynomial=3"
