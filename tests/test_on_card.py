"""What waits for a GPU: that every step can be run as it is written, and what a run keeps."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from benchmarks import card_run, card_steps, card_take, card_tree, next_steps, on_card
from benchmarks.card_lanes import Lanes
from benchmarks.card_run import PACK, Run, Told
from benchmarks.card_steps import Machine, Step, drawn_by, last_step, read_steps
from benchmarks.card_take import take

from test_setup import small_wheel
from workbench.cli import VERBS, app
from workbench.commands.leave_one_out import switches_of
from workbench.commands.target import profiled_shapes
from workbench.evidence import store
from workbench.study.model import Study
from workbench.study.spaces import expanded, is_space
from workbench.study.workspace import Workspace, find_workspace, including
from workspaces import ROOT

STEPS = read_steps()
CALL = 590  # seconds of the shortest time that somebody has a machine for
GPU = "pytest.mark.gpu"
Capture = pytest.CaptureFixture[str]


# ---- the steps as they are written -------------------------------------------------------------
def commands(program: str, steps: Sequence[Step] = STEPS) -> Iterator[tuple[Step, list[str]]]:
    """Those of a program, with its arguments, in the tree as it is."""
    drawn = {
        word: last_step(ROOT, word[6:-1]) if ":" in word else "fresh" for word in drawn_by(steps)
    }
    for step in steps:
        for line, arguments in zip(step.commands, step.arguments(drawn), strict=True):
            if line.startswith(f"{program} "):
                yield step, arguments[1 + len(card_steps.PROGRAMS[program]) :]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """This one, with the steps in it that wait."""
    root = tmp_path_factory.mktemp("card") / "ws"
    for name in ("kernels", "ablations"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("evidence"))
    shutil.copy(ROOT / "workbench.toml", root)
    for study in ("attention", "moe"):
        next_steps.move(root / "ablations" / study)
    return find_workspace(root)


def test_every_step_is_one_that_a_short_call_has_time_for() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    for step in STEPS:
        assert step.expected <= step.limit <= 600, step.name
        assert step.expected < CALL - card_run.GRACE - card_run.PACKING, step.name
        for path in map(ROOT.joinpath, step.fills.split(", ")):
            assert path.is_file() if path.suffix else path.parent.is_dir(), step.name
        for line in step.commands:
            assert line.split()[0] in card_steps.PROGRAMS, line


@pytest.mark.parametrize(
    ("name", "arguments"),
    [pytest.param(s.name, a, id=f"{s.name}-{a[0]}") for s, a in commands("workbench")],
)
def test_a_verb_takes_what_it_is_given(
    name: str, arguments: list[str], workspace: Workspace
) -> None:
    verb, *rest = arguments
    group: Any = typer.main.get_command(app)
    given: Any = VERBS[verb](**group.commands[verb].make_context(verb, rest).params)
    if verb == "doctor" or getattr(given, "check", None):
        return
    space = find_workspace(ROOT / given.project) if given.project else workspace
    study = space.study(given.study)
    typed = [*(getattr(given, "fixes", None) or []), *(getattr(given, "variants", None) or [])]
    typed += [
        one for one in (getattr(given, key, None) for key in ("variant", "before", "after")) if one
    ]
    for word in typed:
        known(study, verb, given, word)
    assert typed or verb in ("ablate", "check")
    picked = profiled_shapes(study, getattr(given, "shape", None))
    assert len(picked) > 1 or ".." not in (given.shape or "")


def known(study: Study, verb: str, given: Any, word: str) -> None:
    """Whether a variant, a space of them, or one with switches is there."""
    if is_space(word):
        assert expanded(study.folder, word, study.variants, searched=given.trials is not None)
    elif getattr(given, "leave_one_out", False):
        assert switches_of(study, word, study.ladder)[1]
    else:
        study, (found,) = including(study, [word])
        assert verb not in ("ablate", "ship") or study.ladder.step(found), word


def test_every_test_of_the_gpu_ring_is_in_a_step() -> None:
    asked = list(commands("pytest"))
    paths = {path for _, arguments in asked for path in arguments if path.startswith("tests/")}
    collect = ["--collect-only", "-q", "-m", "gpu", "-p", "no:cacheprovider", "--assert=plain"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *collect, *sorted(paths)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = [line for line in done.stdout.splitlines() if "::" in line]
    for step, arguments in asked:
        own = tuple(path for path in arguments if path.startswith("tests/"))
        word = value(arguments, "-k")
        assert arguments[:2] == ["-m", "gpu"]
        assert any(line.startswith(own) and word in line for line in found), step.name
    ring = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if GPU in path.read_text(encoding="utf-8") and path != Path(__file__)
    }
    assert ring
    assert ring <= {line.partition("::")[0] for line in found}


def test_every_benchmark_has_the_options_that_it_is_given() -> None:
    for step, arguments in commands("python"):
        named = arguments[1].replace(".", "/") + ".py" if arguments[0] == "-m" else arguments[0]
        text = (ROOT / named).read_text(encoding="utf-8")
        for option in arguments:
            assert not option.startswith("--") or f'"{option}"' in text, step.name


def test_every_example_that_has_no_output_yet_has_a_step() -> None:
    page = (ROOT / "docs" / "try.md").read_text(encoding="utf-8")
    tried = {arguments[1] for _, arguments in commands("python") if "tries" in arguments[0]}
    assert tried == set(re.findall(r"<!-- recorded: (\w+) -->", page))


def test_every_shape_where_an_unrecorded_step_is_judged_has_a_step(workspace: Workspace) -> None:
    ablated = [a for _, a in commands("workbench") if a[0] == "ablate" and "--shape" in a]
    measured = {(value(a, "--study") or "attention", value(a, "--shape")) for a in ablated}
    for name in ("attention", "attention_served", "moe", "softmax"):
        study = workspace.study(name)
        steps = study.ladder.steps
        if (recorded := ROOT / "ablations" / name / "evidence").is_dir():
            names = (path.name for path in recorded.glob("*/checks/*"))
            checked = {name.partition(".json")[0] for name in names}
            timed = {path.parent.name for path in recorded.glob("*/*/timings")}
            steps = tuple(
                s for s in steps if s.variant not in checked or s.shape not in {"", *timed}
            )
        wanted = {(name, step.shape or study.default_shape) for step in steps}
        assert wanted <= measured


def value(arguments: list[str], option: str) -> str:
    """ "" where it is not given."""
    return arguments[arguments.index(option) + 1] if option in arguments else ""


def test_what_is_printed_has_a_place() -> None:
    filled = [step.into.split() for step in STEPS if step.into]
    assert filled
    for page, mark in filled:
        assert (ROOT / page).read_text(encoding="utf-8").count(f"<!-- {mark} -->\n") == 1


def test_it_starts_where_nothing_is_installed() -> None:
    for path in [*(ROOT / "benchmarks").glob("card_*.py"), ROOT / "benchmarks" / "on_card.py"]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            tops = {each.partition(".")[0] for each in names}
            assert tops <= {*sys.stdlib_module_names, "benchmarks"}, tops


def test_all_of_the_repository_is_copied() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {line for line in done.stdout.splitlines() if (ROOT / line).is_file()}
    visible = {line for line in tracked if not line.startswith(".")}
    assert visible <= set(card_tree.files(ROOT))


def test_the_command_line(capsys: Capture) -> None:
    assert on_card.main(["--list"]) == 0
    assert all(step.name in capsys.readouterr().out for step in STEPS[:1])
    assert on_card.main(["--dry-run", "*"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("\n    python ") == sum(len(step.commands) for step in STEPS)
    assert f"ship {last_step(ROOT, 'moe')} --study moe" in shown
    assert on_card.main(["--dry-run", "redteams"]) == 2
    assert "no step 'redteams'" in capsys.readouterr().err
    assert on_card.main([]) == 2
    assert "--list" in capsys.readouterr().err


# ---- a run -------------------------------------------------------------------------------------
def python(code: str) -> str:
    return f"python -c {shlex.quote(code)}"


def step(name: str, *codes: str, limit: int = 60, **given: Any) -> Step:
    """One that runs anywhere."""
    known: dict[str, Any] = {"programs": (), "cards": 0, "expected": 0, "limit": limit, **given}
    return Step(name=name, what="", fills="", commands=tuple(map(python, codes)), **known)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with little in it."""
    root = tmp_path / "source"
    for name, text in {
        "pyproject.toml": "[project]\ndependencies = []\n",
        "docs/page.md": "# Page\n\n<!-- HERE -->\n\nThe end.\n",
        "ablations/one/evidence/journal.jsonl": "first\n",
        "ablations/one/evidence/old.json": "{}\n",
        "ablations/one/ablation.toml": '[[step]]\nvariant = "a"\n[[step]]\nvariant = "b"\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def run(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(card_run, "own_packages", lambda tree: ["pytest"])
    made = Run(tmp_path / "out", tmp_path / "scratch", source=source, grace=20)
    made.prepare([])
    return made


def ended(run: Run) -> dict[str, tuple[str, str]]:
    return {one.step: (one.how, one.why) for one in run.ended}


def packed(run: Run) -> list[str]:
    with tarfile.open(run.out / PACK) as archive:
        return archive.getnames()


JOURNAL = "ablations/one/evidence/journal.jsonl"
MEASURE = f"""
from pathlib import Path
with open("{JOURNAL}", "a") as journal:
    journal.write("second\\n")
Path("ablations/one/evidence/new.json").write_text("new")
Path("ablations/one/evidence/old.json").unlink()
Path("ablations/one/__pycache__").mkdir()
Path("ablations/one/__pycache__/a.pyc").touch()
"""


def test_what_steps_changed_is_packed_after_each_and_can_be_taken(run: Run, source: Path) -> None:
    names = f"import tarfile; print(sorted(tarfile.open({str(run.out / PACK)!r}).getnames()))"
    assert run.run([step("one", MEASURE), step("two", names)]) == 0
    log = (run.out / "log.txt").read_text()
    assert str([JOURNAL, "ablations/one/evidence/new.json", card_tree.TOLD]) in log
    assert "==== " in log
    assert sorted(path.name for path in run.out.iterdir()) == [PACK, "log.txt", "table.md"]
    assert (source / JOURNAL).read_text() == "first\n", "the checkout is left alone"
    taken = take([run.out / PACK], source)
    assert taken.written == (JOURNAL, "ablations/one/evidence/new.json")
    assert taken.removed == ("ablations/one/evidence/old.json",)
    assert (source / JOURNAL).read_text() == "first\nsecond\n"
    assert not (source / "ablations/one/evidence/old.json").exists()
    again = take([run.out / PACK], source)
    assert (again.written, again.removed, again.both) == ((), (), ())


def test_what_the_checkout_has_changed_too_is_left(run: Run, source: Path) -> None:
    change = "from pathlib import Path; Path('docs/page.md').write_text('theirs')"
    assert run.run([step("one", MEASURE), step("two", change)]) == 0
    (source / "docs/page.md").write_text("mine")
    (source / "ablations/one/evidence/old.json").write_text("mine")
    with (source / JOURNAL).open("a") as journal:
        journal.write("of another machine\n")
    taken = take([run.out / PACK], source)
    assert taken.both == ("docs/page.md", "ablations/one/evidence/old.json")
    assert (source / "docs/page.md").read_text() == "mine"
    assert (source / JOURNAL).read_text() == "first\nof another machine\nsecond\n"


def test_a_large_pack_comes_in_pieces(
    run: Run, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.run([step("one", MEASURE)]) == 0
    monkeypatch.setattr(card_tree, "PIECE", 200)
    run.tree.pack(run.out / PACK)
    assert not (run.out / PACK).exists()
    assert (run.out / f"{PACK}.part1").is_file()
    assert len(take([run.out / PACK], source).written) == 2
    monkeypatch.undo()
    run.tree.pack(run.out / PACK)
    assert [path.name for path in run.out.glob(f"{PACK}*")] == [PACK]


def test_an_archive_of_anybody_is_refused(tmp_path: Path, source: Path) -> None:
    bad = tmp_path / PACK
    with pytest.raises(FileNotFoundError):
        take([bad], source)
    bad.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="not packed by this program"):
        take([bad], source)
    for name in ("docs/../../else", "else/docs"):
        told = tmp_path / card_tree.TOLD
        told.write_text(json.dumps({"made": {name: ""}, "removed": {}}))
        with tarfile.open(bad, "w:gz") as archive:
            archive.add(told, arcname=card_tree.TOLD)
            archive.add(told, arcname=name)
        with pytest.raises(ValueError, match="is no file of this repository"):
            take([bad], source)


def test_a_step_past_its_limit_is_stopped_keeps_what_it_has_and_the_next_one_runs(
    run: Run,
) -> None:
    slow = """
from pathlib import Path
import time
try:
    time.sleep(60)
except KeyboardInterrupt:
    Path("docs/kept.md").write_text("kept")
"""
    began = time.monotonic()
    assert run.run([step("slow", slow, "1", limit=3), step("next", "print('next ran')")]) == 1
    assert time.monotonic() - began < 40
    assert ended(run) == {"slow": ("stopped", "over 3 s"), "next": ("done", "")}
    assert "docs/kept.md" in run.tree.changes()[0]
    assert "next ran" in (run.out / "log.txt").read_text()
    assert "| slow | stopped: over 3 s |" in (run.out / "table.md").read_text()


def test_nothing_is_left_of_one_that_does_not_listen(run: Run) -> None:
    deaf = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("child", child.pid, flush=True)
time.sleep(60)
"""
    run.grace = 0.5
    assert run.run([step("deaf", deaf, limit=3)]) == 1
    found = re.search(r"child (\d+)", (run.out / "log.txt").read_text())
    assert found is not None
    until = time.monotonic() + 20
    while is_running(int(found[1])) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(int(found[1]))


def is_running(pid: int) -> bool:
    """A zombie, which nobody has waited for, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_step_that_fails_ends_there_and_the_next_one_runs(run: Run) -> None:
    assert run.run([step("bad", "raise SystemExit(3)", "print('never')"), step("good", "1")]) == 1
    assert ended(run) == {"bad": ("failed", "exit 3"), "good": ("done", "")}
    assert "\nnever" not in (run.out / "log.txt").read_text()


def test_what_a_machine_lacks_leaves_a_step_out(run: Run) -> None:
    lacking = step("lacking", "1", cards=99, programs=("no-such",), packages=("no-such-package",))
    assert run.run([lacking, step("next", "1")]) == 3
    assert ended(run) == {
        "lacking": ("left out", "lacks 99 GPUs, no-such, no-such-package"),
        "next": ("done", ""),
    }
    assert Machine(run.site.packages).lacks(step("all", "1", packages=("PyYAML",)), []) == []


def test_a_package_without_what_it_needs_leaves_a_step_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its wheels had not come, and a machine was held for what could not be measured."""
    site = run.site.packages
    (site / "flash_attn").mkdir(parents=True)
    (site / "flash_attn" / "cute.py").write_text("import not_there")
    (site / "flash_attn_4-4.0.dist-info").mkdir()
    (site / "flash_attn_4-4.0.dist-info" / "METADATA").write_text("Name: flash-attn-4\n")
    wanting = step("wanting", "1", packages=("flash-attn-4",))
    assert run.run([wanting]) == 3
    assert ended(run)["wanting"] == ("left out", "lacks what flash-attn-4 needs")
    (site / "flash_attn" / "cute.py").write_text("")
    card_steps.can_import.cache_clear()
    run.run([wanting])
    assert ended(run)["wanting"] == ("done", "")


def test_what_there_is_no_time_for_is_left_out(run: Run) -> None:
    run.last = time.monotonic() + run.grace + card_run.PACKING + 30
    assert run.run([step("long", "1", expected=60), step("short", "1", expected=1)]) == 3
    assert ended(run)["long"][0] == "left out"
    assert ended(run)["short"] == ("done", "")


def test_ctrl_c_ends_the_run_and_loses_nothing(run: Run) -> None:
    """As the kernel sends it to the program that a terminal runs."""
    interrupting = MEASURE + "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\n"
    code = run.run([step("one", f"{interrupting}time.sleep(60)"), step("two", "1")])
    assert code == 130
    assert ended(run) == {"one": ("stopped", "interrupted")}
    assert JOURNAL in packed(run)


def test_what_is_printed_is_put_below_its_mark_and_later_in_its_place(run: Run) -> None:
    told = "import sys; print('| told |'); print('progress', file=sys.stderr)"
    for code in ("print('before')", told):
        assert run.run([step("one", code, into="docs/page.md HERE")]) == 0
    page = (run.tree.root / "docs/page.md").read_text()
    assert re.fullmatch(
        r"# Page\n\n<!-- HERE -->\n`python -c .*`, \d{4}-\d\d-\d\d:\n\n\| told \|\n<!-- /HERE -->\n"
        r"\nThe end.\n",
        page,
    )
    assert "progress" in (run.out / "log.txt").read_text()
    assert run.run([step("two", "print(1)", into="docs/page.md THERE")]) == 1
    assert ended(run)["two"] == ("failed", "page.md has no mark THERE")


def test_commands_know_the_last_step_of_a_ladder_and_an_empty_folder(run: Run) -> None:
    code = "import os, sys; print(sys.argv[1], os.listdir(sys.argv[2].rpartition('/')[0]))"
    wanted = step("one", code)
    wanted = Step(**{**vars(wanted), "commands": (f"{wanted.commands[0]} <last:one> <fresh>/x",)})
    assert run.run([wanted]) == 0
    assert "\nb []\n" in (run.out / "log.txt").read_text()


def test_the_last_step_is_that_which_a_command_before_has_moved_there(run: Run) -> None:
    ladder = "ablations/one/ablation.toml"
    move = f"open('{ladder}', 'a').write('[[step]]\\nvariant = \"moved\"\\n')"
    show = "import sys; print(sys.argv[1:])"
    wanted = step("one", move, show)
    commands = (wanted.commands[0], f"{wanted.commands[1]} <last:one>")
    assert run.run([Step(**{**vars(wanted), "commands": commands})]) == 0
    assert "\n['moved']\n" in (run.out / "log.txt").read_text()


def test_a_step_sees_the_copy_and_nothing_of_the_checkout(
    run: Run, source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = os.pathsep.join([str(source / "profiler"), str(tmp_path / "else")])
    monkeypatch.setenv("PYTHONPATH", given)
    found = run.site.environment(run.tree.root, source)["PYTHONPATH"].split(os.pathsep)
    assert found[0] == str(run.tree.root / "profiler")
    assert str(tmp_path / "else") in found
    assert not any(path.startswith(str(source)) for path in found)


# ---- several at once ---------------------------------------------------------------------------
@pytest.fixture
def lanes(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    monkeypatch.setattr(card_run, "own_packages", lambda tree: ["pytest"])
    told = Told(tmp_path / "out")
    scratch = tmp_path / "scratch"
    runs = [Run(told.out, scratch, source=source, grace=20, lane=n, shared=told) for n in (0, 1)]
    for run in runs:
        run.prepare([])
    return runs


def test_lanes_work_at_once_each_with_its_card(lanes: list[Run]) -> None:
    """Each waits for the other, which must have begun."""
    meets = """
import os, time
from pathlib import Path
place, own = Path(os.environ["TMPDIR"]).parents[1], os.environ["CUDA_VISIBLE_DEVICES"]
(place / f"here-{own}").touch()
until = time.monotonic() + 30
while not (place / f"here-{1 - int(own)}").exists():
    assert time.monotonic() < until
    time.sleep(0.01)
"""
    both = [step("one", meets), step("two", meets), step("wide", "1", cards=2)]
    assert Lanes(lanes, both).run() == 3
    found = ended(lanes[0])
    assert found["one"] == found["two"] == ("done", "")
    assert found["wide"][0] == "left out"
    log = (lanes[0].out / "log.txt").read_text()
    assert "lane 0: python -c" in log
    assert "lane 1: python -c" in log
    assert len(list(lanes[0].out.iterdir())) == 4  # two archives, the log and the table


def test_what_comes_after_a_step_is_its_lanes(lanes: list[Run]) -> None:
    made = "from pathlib import Path; Path('docs/made').write_text('1')"
    uses = "from pathlib import Path; assert Path('docs/made').is_file()"
    rest = [step(f"rest{n}", "1") for n in range(3)]
    assert Lanes(lanes, [step("a", made), step("b", uses, after="a"), *rest]).run() == 0
    assert {one.step for one in lanes[0].ended} == {"a", "b", "rest0", "rest1", "rest2"}
    assert Lanes(lanes[1:], [step("c", "1", after="not chosen")]).run() == 0


def test_ctrl_c_ends_all_lanes(lanes: list[Run]) -> None:
    slow = "import time\ntime.sleep(60)"
    deaf = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"
    work = Lanes(lanes, [step("one", slow), step("two", deaf), step("three", "1")])
    lanes[0].grace = 3

    def interrupt() -> None:
        while not all(run.running for run in lanes):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    began = time.monotonic()
    threading.Thread(target=interrupt).start()
    assert work.run() == 130
    assert time.monotonic() - began < 30
    assert ended(lanes[0]) == dict.fromkeys(("one", "two"), ("stopped", "interrupted"))


@pytest.mark.parametrize("packing", ["", ".bz2"])
def test_what_lanes_changed_is_put_together(lanes: list[Run], source: Path, packing: str) -> None:
    page, checks = "docs/page.md", f"ablations/one/evidence/checks/a.json{packing}"
    (source / checks).parent.mkdir()
    old = {"provenance": {"date": "1"}, "shapes": {"s": {"max_abs": 0}, "t": {"max_abs": 0}}}
    write(source / checks, old)
    (source / page).write_text("".join(f"{n}\n" for n in range(20)))
    for run in lanes:
        run.prepare([])
    for run, line, shape, date in zip(lanes, (2, 17), "st", "32", strict=True):
        text = (run.tree.root / page).read_text()
        (run.tree.root / page).write_text(text.replace(f"\n{line}\n", f"\n{line} more\n"))
        new = json.loads(json.dumps(old))
        new["shapes"][shape]["max_abs"], new["provenance"]["date"] = 1, date
        new["shapes"][f"{shape}{shape}"] = {"max_abs": 2}
        write(run.tree.root / checks, new)
        with (run.tree.root / JOURNAL).open("a") as journal:
            journal.write(f'{{"date": "{date}"}}\n')
        (run.tree.root / "docs/both.md").write_text(f"{line}")
        never_recorded = (run.tree.root / checks).with_name(f"b.json{packing}")
        write(never_recorded, {"provenance": {"date": date}, "shapes": {shape: {"max_abs": 3}}})
        (run.tree.root / f"docs/of-{shape}.md").write_text("new")
        run.tree.pack(run.pack)
    taken = take([run.pack for run in lanes], source)
    assert taken.both == ("docs/both.md",)
    new = checks.replace("/a.json", "/b.json")
    assert {"docs/of-s.md", "docs/of-t.md", page, checks, new, JOURNAL} == set(taken.written)
    assert written(source / new) == {
        "provenance": {"date": "3"},
        "shapes": {"s": {"max_abs": 3}, "t": {"max_abs": 3}},
    }
    text = (source / page).read_text()
    assert "\n2 more\n" in text
    assert "\n17 more\n" in text
    found = written(source / checks)
    assert found["provenance"]["date"] == "3"
    assert {name: one["max_abs"] for name, one in found["shapes"].items()} == {
        "s": 1, "t": 1, "ss": 2, "tt": 2,
    }  # fmt: skip
    dates = re.findall(r'"date": "(\d)"', (source / JOURNAL).read_text())
    assert dates == ["2", "3"]


def write(path: Path, record: dict[str, Any]) -> None:
    path.write_bytes(store.packed(path, json.dumps(record).encode()))


def written(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.unpacked(path, path.read_bytes()))
    return found


def test_checks_are_written_as_the_workbench_writes_them() -> None:
    paths = sorted((ROOT / "ablations").glob("*/evidence/*/checks/*"))
    assert {path.suffix for path in paths} == {".json", ".bz2"}
    for path in paths:
        data = path.read_bytes()
        other = json.dumps({**written(path), "provenance": {}}).encode()
        assert store.packed(path, card_take.shapes(data, data, other)) == data


# ---- run again ---------------------------------------------------------------------------------
def test_another_run_goes_on_where_the_first_one_was(
    run: Run, source: Path, tmp_path: Path, capsys: Capture
) -> None:
    change = "from pathlib import Path; Path('docs/page.md').write_text('theirs')"
    assert run.run([step("one", MEASURE), step("two", change)]) == 0
    (source / "docs/new.md").write_text("new")
    (source / "docs/page.md").write_text("mine")
    (source / "ablations/one/ablation.toml").write_text('[[step]]\nvariant = "c"\n')
    again = Run(tmp_path / "out2", run.scratch, source=source)
    again.prepare([])
    assert "docs/page.md: changed here and by an earlier step" in capsys.readouterr().out
    assert (run.tree.root / "docs/page.md").read_text() == "theirs"
    assert (run.tree.root / "docs/new.md").read_text() == "new"
    assert last_step(run.tree.root, "one") == "c"
    assert run.tree.root.joinpath(JOURNAL).read_text() == "first\nsecond\n"
    assert again.run([step("three", "1")]) == 0
    assert JOURNAL in packed(again), "what was never fetched is there"


def test_another_run_into_the_same_folder_loses_nothing(
    run: Run, source: Path, tmp_path: Path
) -> None:
    assert run.run([step("one", MEASURE)]) == 0
    again = Run(run.out, run.scratch, source=source)
    again.prepare([])
    assert again.run([step("two", "1")]) == 0
    told = (run.out / "table.md").read_text()
    assert "| one | done |" in told
    assert "| two | done |" in told
    assert (run.out / "log.txt").read_text().count("\n==== ") == 2
    assert JOURNAL in packed(again)
    with pytest.raises(card_steps.Unusable, match="of another copy"):
        Run(run.out, tmp_path / "elsewhere", source=source).prepare([])


def test_what_was_taken_is_no_change_any_more(run: Run, source: Path) -> None:
    assert run.run([step("one", MEASURE)]) == 0
    take([run.out / PACK], source)
    (source / "docs/page.md").unlink()
    run.prepare([])
    assert run.tree.changes() == ({}, {})
    assert not (run.tree.root / "docs/page.md").exists()


def test_a_copy_that_was_cut_short_is_made_whole(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Run(tmp_path / "out", tmp_path / "scratch", source=source)

    def cut(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copy2", cut)
        with pytest.raises(KeyboardInterrupt):
            made.prepare([])
    made.prepare([])
    assert made.tree.changes() == ({}, {})
    assert sorted(card_tree.files(made.tree.root)) == sorted(card_tree.files(source))


@pytest.mark.parametrize("name", ["somebodys", "source/inside"])
def test_a_folder_that_is_not_its_own_is_refused(name: str, source: Path, tmp_path: Path) -> None:
    scratch = tmp_path / name
    scratch.mkdir()
    (scratch / "file").touch()
    with pytest.raises(card_steps.Unusable):
        Run(tmp_path / "out", scratch, source=source).prepare([])
    assert [path.name for path in scratch.iterdir()] == ["file"]


def test_a_private_path_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(card_steps.Unusable, match="captures would hold"):
        Run(tmp_path / "out", Path("/home/somebody/ws"), source=source).prepare([])


# ---- wheels ------------------------------------------------------------------------------------
def test_a_wheel_of_a_later_call_leaves_what_shares_its_folder(run: Run, tmp_path: Path) -> None:
    for name in ("first", "second"):
        small_wheel(tmp_path / name, name, f"shared/{name}.py")
        run.prepare([tmp_path / name])
    found = sorted(path.name for path in (run.site.packages / "shared").glob("*.py"))
    assert found == ["first.py", "second.py"]


def test_wheels_are_installed_once_also_in_pieces_that_come_with_two_calls(
    run: Run, tmp_path: Path, capsys: Capture
) -> None:
    small_wheel(tmp_path / "whole")
    (wheel,) = (tmp_path / "whole").glob("*.whl")
    data = wheel.read_bytes()
    for number, piece in enumerate((data[:200], data[200:])):
        folder = tmp_path / f"call{number}"
        folder.mkdir()
        (folder / f"{wheel.name}.part{number}").write_bytes(piece)
    needing = step("one", "import workbench_tried; print(workbench_tried.WORD)",
                   packages=("workbench-tried",))  # fmt: skip
    run.prepare([tmp_path / "call0"])
    assert f"{wheel.name}: not whole yet" in capsys.readouterr().out
    assert run.run([needing]) == 3
    run.prepare([tmp_path / "call1"])
    run.ended.clear()
    assert run.run([needing]) == 0
    assert "\ncarried\n" in (run.out / "log.txt").read_text()
    (run.site.packages / "workbench_tried.py").unlink()
    run.prepare([tmp_path / "whole"])
    assert not (run.site.packages / "workbench_tried.py").exists(), "not installed again"
