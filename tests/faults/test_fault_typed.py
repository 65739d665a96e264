"""What is typed, and what ``show`` and ``check`` answer: nothing of it steers the terminal."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from answers import Capsys, Patch, both_of, refused, text_of
from hostile_texts import WORST, steering, texts
from property_cases import examples
from workbench.cli import show
from workbench.cli.main import main
from workbench.cli.progress import Progress
from workbench.cli.streams import note
from workbench.ncu.report_file import Report, read_report
from workbench.render import as_json, in_short
from workbench.run.protocol import Captured, ErrorText, Failed
from workbench.words import Phase
from workspaces import CAUSAL, EVIDENCE, FIXTURE, copy_of_fixture, put_in, recorded_report, told_in

REPORT = recorded_report(CAUSAL, "fix10")
RED = "\x1b[31m\u202ered"
SHOWN = "\\x1b[31m\\u202ered"
ABROAD = ["--project", str(FIXTURE)]


def said_printable(capsys: Capsys, arguments: list[str]) -> str:
    err = refused(capsys, *arguments)
    assert err.startswith("error: ")
    assert not steering(err)
    return err


@pytest.mark.parametrize(
    "arguments",
    [
        [RED],
        ["list", f"--{RED}"],
        ["list", RED],
        ["show", "fix1", "--top", RED],
        ["show", "fix1", "--launch", RED],
        ["diff", "fix1"],
        ["list", "--project"],
        ["check", "--shape", RED, *ABROAD],
        ["ablate", "--shape", RED, *ABROAD],
        ["list", "--study", RED, *ABROAD],
        ["show", RED, *ABROAD],
        ["show", "fix1", "--metric", RED, *ABROAD],
        ["show", "fix1", "--kernel", RED, *ABROAD],
        ["show", str(REPORT), "--kernel", RED],
        ["show", f"{RED}.ncu-rep"],
        ["profile", f"fix2[warps={RED}]", *ABROAD],
        ["build", "--arch", RED, *ABROAD],
        ["list", "--project", RED],
    ],
)
def test_what_was_typed_is_said_printable(
    arguments: list[str], tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    said_printable(capsys, arguments)


def test_the_escapes_are_shown_and_not_left_out(capsys: Capsys) -> None:
    assert f"No such command '{SHOWN}'" in said_printable(capsys, [RED])


WORDS = st.sampled_from(["list", "show", "diff", "--json", "--top", "--shape", "-x"]) | texts
WORDS |= texts.map("--{}".format)


@settings(max_examples=examples(40, many=2000))
@given(st.lists(WORDS, min_size=1, max_size=4))
@example([WORST])
@example(["show", "fix1", "--top", WORST])
@example(["show", "--", WORST])
@example(["list", f"--{WORST}"])
def test_no_command_line_steers_the_terminal(capsys: Capsys, arguments: list[str]) -> None:
    verb, *rest = arguments
    code = main([verb, *rest, *ABROAD])
    out, err = capsys.readouterr()
    assert code in (0, 2)
    assert not steering(out + err)


BRIEF = st.sampled_from(
    ["show", "advise", "profile", "ablate", "check", "diff", "list", "try", "-x"]
)
IDS = texts | st.tuples(texts, texts, texts).map("/".join)


@settings(max_examples=examples(10, many=2000))
@given(BRIEF, st.lists(IDS, max_size=3))
@example("show", ["attention/b2h8s512d64/fix10@20260101", "fix10"])
@example("show", [f"attention/{WORST}/fix10"])
@example("try", ["\0/file"])
def test_a_brief_answer_is_one_line_of_json(capsys: Capsys, verb: str, names: list[str]) -> None:
    code = main([verb, "--brief", *ABROAD, "--", *names])
    out = capsys.readouterr().out
    assert code in (0, 1, 2, 5)
    assert out.endswith("}\n")
    assert out.count("\n") == 1
    assert len(out) <= in_short.MORE + 1
    assert json.loads(out)["schema_version"] == as_json.VERSION
    assert code == 0 or "error" in json.loads(out) or not names


@settings(max_examples=examples(20, many=500))
@given(texts)
@example(WORST)
def test_no_progress_steers_the_terminal(capsys: Capsys, text: str) -> None:
    """Where stderr is no terminal, and where it is one."""
    error, screen = ErrorText(kind=text, message=text), io.StringIO()
    with Progress(captures=2) as progress:
        terminal = Console(file=screen, force_terminal=True, highlight=False)
        for console in (progress.console, terminal):
            progress.console = console
            progress(Failed(variant=text, phase=Phase.BUILD, error=error))
            progress(Captured(variant=text))
    note(text)
    assert not steering(capsys.readouterr().err)
    assert not steering(screen.getvalue().replace("\x1b[0m", ""))


def test_a_hint_of_usage_leads_to_the_help(capsys: Capsys) -> None:
    for arguments in (["nosuch"], ["show"], ["list", "--nosuch"]):
        told = said_printable(capsys, arguments)
        (command,) = re.findall(r"hint: `workbench (.*)` lists arguments and options", told)
        assert "Usage: workbench" in text_of(capsys, *command.split())


def test_no_verb_is_answered_by_the_help(capsys: Capsys) -> None:
    assert main([]) in (0, 2)
    told = capsys.readouterr()
    assert "Usage: workbench" in told.out + told.err
    assert "hint:" not in told.err


def test_show_says_names_of_a_report_printable(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    """Of file, kernel and GPU."""
    own = tmp_path / f"{RED}.ncu-repz"
    own.write_bytes(REPORT.read_bytes())

    def hostile(path: Path) -> Report:
        found = read_report(path)
        named = [dataclasses.replace(each, kernel=RED, gpu=RED) for each in found.launches]
        return dataclasses.replace(found, launches=tuple(named))

    monkeypatch.setattr(show, "read_report", hostile)
    out, err = both_of(capsys, "show", str(own))
    assert not steering(out + err)
    assert RED not in out
    assert "x1b[31m" in out


def test_what_does_not_compile_is_told_once(tmp_path: Path, capsys: Capsys) -> None:
    root = copy_of_fixture(tmp_path)
    path = root / EVIDENCE.relative_to(FIXTURE) / "variants/fix10.json"
    record = told_in(path)
    why = "b.cu does not compile\n/workbench/kernels/attention/b.cu(3): error: \x1b[2J"
    record["build"]["error"] = why
    put_in(path, record)
    out, err = both_of(capsys, "check", "fix10", project=root, code=1)
    for text in (out, err):
        assert text.count("b.cu does not compile") == 1
        assert "failed at every shape" in text
        assert not steering(text)
    assert f"{root / 'kernels/attention'}/b.cu(3): error" in err
