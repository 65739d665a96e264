"""Every command and every piece of Python of README, docs, starters, help and hints works as it is
printed, where it is printed: to its end, or until it needs a GPU. A page of ``ELSEWHERE`` has a
test of its own as well, which follows all of it.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from answers import Capsys, Patch, python
from git_repository import repository
from workbench.cli.main import VERBS, command, main
from workspaces import CAUSAL, ROOT, copy_of_fixture, recorded_report

SKILL = "skill/reference.md"  # the docs have a page of the name
PAGES = {
    SKILL if path.parent.name == "agents" and path.name == "reference.md" else path.name: (
        path.read_text("utf-8")
    )
    for folder in (ROOT, ROOT / "docs", ROOT / "starters" / "agents")
    for path in sorted(folder.glob("*.md"))
    if path != ROOT / "AGENTS.md"  # the starters' has the name
}
ELSEWHERE = {
    "guide.md": "test_guide.py",
    "library.md": "test_written_docs.py",
    "try.md": "test_try.py",
    "variants.md": "test_readme.py",
}
REPO, ROWS, GIT, PROBLEMS = "repository", "rows", "git", "problems"
PLACES = {  # where a page's commands are typed; a workspace of `init rows`, tests/problems, ...
    "guide.md": ROWS,
    "gate.md": GIT,
    "reference.md": GIT,
    "try.md": PROBLEMS,
}
TYPED = {  # what a reader types for a word in capitals
    "A.ncu-rep": "a.ncu-repz",
    "B.ncu-rep": "b.ncu-repz",
    "FILE.py:FUNCTION": "row_softmax.py:softmax",
    "FILE[:FUNCTION]": "row_softmax.py:softmax",
    "FILE": "a.ncu-repz",
    "VARIANT": "fix1",
    "FIX": "fix1",
    "NAME": "fix9",
    "TEXT": "wider",
    "DIR": "made",
    "GOOD": "v1.2",
    "EVIDENCE_ID": "attention/b2h8s512d64/fix2@20261127",
    "ID": "attention/b2h8s512d64/fix2@20261127",
    "VERB": "ablate",
    "A": "fix1",
    "B": "fix2",
}
SMALLER = {  # sizes of what `try` is given
    "4096": "64",
    "8192": "128",
    "67108864": "1024",
    "10, 11": "5, 6",
}
VALUES = {  # what stands for an expression in a hint of the engine
    "quote(variant)": "fix1",
    "quote(options.name)": "fix1",
    "quote(space.text)": "'fix2[warps=4|12]'",
    "for_shell(files[0])": "a.ncu-repz",
    "quote(ladder.best.variant)": "fix30",
    "target.options": " --study attention",
    "self.place": "gpu1",
    "next(iter(self))": "a.ncu-repz",
    "name": "gpu__time_duration.sum",
}
# What shows that all was well but for the GPU.
NO_GPU = re.compile(
    r"no NVIDIA GPU was found|needs a GPU|where there is a GPU|no GPU|nothing can be measured here"
)
# Another machine, a program of the reader's own, an input without an end, a step that is there
# already: only read; and what another command here does as well, or test_ci.py.
PARSED = (
    "workbench weigh trace.json.gz",  # of a model on a GPU
    *("--on", "workbench mcp", "workbench new tiled", "report --html"),
    *("doctor --json", "doctor --brief", "bisect fix11", "ablate --study att"),
    *("build 'fix2[warps=2|4]'", "build fix2", "workbench profile -- ", "{stem}.ncu-rep"),
    *("profile --timeline", "profile --keep", "--keep mine", "--study mine", "gate --env"),
    "workbench try built.so",
)
PYTHON = {  # the first line of a block, and the test that runs it; all are compiled here
    "with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):": "test_front_ends.py",
    "from adapters.transformers import register": "test_attention_served.py",
    "from kernels import get_local_kernel": "test_ship.py",
    "from pathlib import Path": "test_the_recipe_for_several_gpus_starts_a_cluster",
    "import time": "test_slurm.py",
}
OTHERS = re.compile(
    r"python3 -m venv \.venv|\. (?:\.venv/bin/)?activate|cd \w+"
    r"|pip install -e '?\.(\[(?P<extra>\w+)\])?'?|pytest(?P<pytest>.*)"
    r"|python -m (?P<module>[\w.]+)"
    r"|exit .*"
)


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)


def commands(page: str) -> Iterator[str]:
    """In fenced blocks, and indented by four; without their comments."""
    indented = re.findall(r"^    ((?:\.venv/bin/)?workbench .*)$", PAGES[page], re.MULTILINE)
    for text in [*blocks(page, "sh"), *indented]:
        for line in text.replace("\\\n", " ").splitlines():
            for one in re.sub(r"\s+# .*", "", line).split(" && "):
                yield one.replace(".venv/bin/", "").strip()


def printed() -> set[str]:
    return {one for page in PAGES if page not in ELSEWHERE for one in commands(page)}


def test_every_other_command_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for one in printed():
        if one.startswith("workbench "):
            continue
        found = OTHERS.fullmatch(one)
        assert found is not None, one
        assert found["extra"] is None or found["extra"] in project["optional-dependencies"], one
        module = (found["module"] or "").replace(".", "/")
        assert not module or module == "venv" or (ROOT / f"{module}.py").is_file(), one
        files = re.findall(r"\S+\.py", found["pytest"] or "")
        assert all((ROOT / file).is_file() for file in files), one


def spans(page: str) -> Iterator[str]:
    """In code within prose and tables."""
    prose = re.sub(r"^```.*?^```|^    .*?$|<!--.*?-->", "", PAGES[page], flags=re.M | re.S)
    for line in re.findall(r"`(workbench [^`]*)`", prose):
        yield " ".join(line.replace("\\|", "|").split())


def hints(path: Path) -> Iterator[str]:
    """In the strings of a module, but for docstrings: hints, and what is next."""
    if "`workbench " not in (code := path.read_text("utf-8")):
        return
    nodes = [*ast.walk(ast.parse(code))]
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inner = {id(x) for n in nodes if isinstance(n, ast.JoinedStr) for x in n.values}
    for node in nodes:
        if id(node) in docs | inner:
            continue
        text = node.value if isinstance(node, ast.Constant) else ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(x.value) if isinstance(x, ast.Constant) else f"{{{ast.unparse(x.value)}}}"  # type: ignore[attr-defined]
                for x in node.values
            )
        if isinstance(text, str):
            for line in re.findall(r"`(workbench [^`]*)`", text):
                yield re.sub(r"\{(.*?)\}(?=[ {]|$)", lambda found: VALUES[found[1]], line)


def typed(line: str) -> list[str]:
    """The arguments, with words of the reader's own; what is in brackets is left out."""
    line = re.sub(r" \[[A-Z-].*?\]", "", line.replace("[:FUNCTION]", ":FUNCTION"))
    line = line.replace("FILE:FUNCTION", "FILE.py:FUNCTION")
    if line.startswith("workbench try"):
        line = smaller(re.sub(r"\bFILE\b(?![.:])", "row_softmax.py", line))
    words = sorted(TYPED, key=len, reverse=True)
    pattern = "|".join(rf"(?<![\w'./-]){re.escape(word)}(?![\w./-])" for word in words)
    return shlex.split(re.sub(pattern, lambda found: TYPED[found[0]], line))[1:]


def smaller(text: str) -> str:
    return re.sub(rf"\b({'|'.join(SMALLER)})\b", lambda size: SMALLER[size[0]], text)


def examples() -> dict[tuple[str, str], None]:
    """Each command with the place where it is typed; verbs alone are names where they need more."""
    found: dict[tuple[str, str], None] = {}
    verbs = command().commands
    needy = {name for name, verb in verbs.items() if any(p.required for p in verb.params)}
    needy.add("gate")  # a commit, or two environments

    def add(place: str, line: str) -> None:
        first, *more = typed(line)
        if first not in needy or more:
            small = line in ("workbench build", "workbench ablate --all-shapes")
            found[ROWS if small else place, line] = None

    for page in PAGES:
        place = PLACES.get(page, REPO)
        for line in [*commands(page), *spans(page)]:
            if line.startswith("workbench "):
                add(place, line)
    for path in sorted((ROOT / "profiler" / "workbench").rglob("*.py")):
        for line in hints(path):
            add(REPO, line)
    for name, verb in verbs.items():
        (line,) = re.findall(r"Example: (workbench .*)", verb.help)
        assert line.split()[1] == name
        add(GIT if name in ("gate", "bisect") else REPO, line)
    return found


EXAMPLES = list(examples())
LONG = ("ship", "check", "build", "gate", "bisect", "sweep", "try", "ablate", "doctor")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders in which commands are typed, each with two reports of the reader."""
    repo = tmp_path_factory.mktemp("repo")
    for name in ("kernels", "ablations", "templates", "tests/problems/examples"):
        shutil.copytree(ROOT / name, repo / name)
    shutil.copy(ROOT / "workbench.toml", repo)
    rows = tmp_path_factory.mktemp("rows") / "rows"
    assert main(["init", str(rows), "--template", "cuda"]) == 0
    change = ["--from", "fix1", "--change", "wider loads", "--project", str(rows)]
    assert main(["new", "fix2", *change]) == 0
    tagged = repository(copy_of_fixture(tmp_path_factory.mktemp("git"), "attention"))
    tagged.git("tag", "v1.2")
    tagged.edit("kernels/attention/fix1.cu", "\n", "\n\n")
    tagged.git("tag", "v1.3")
    examples = repo / "tests/problems/examples"
    made = {REPO: repo, ROWS: rows, GIT: tagged.workspace, PROBLEMS: examples}
    for folder in {*made.values()}:
        for name in ("a.ncu-repz", "b.ncu-repz"):
            shutil.copy(recorded_report(CAUSAL, "fix10"), folder / name)
        shutil.copy(ROOT / "tests/problems/examples/row_softmax.py", folder)
        for path in [*folder.glob("*.py"), *(folder / "tests/problems/examples").glob("*.py")]:
            path.write_text(smaller(path.read_text()))
    return made


def test_there_are_commands_of_every_place() -> None:
    assert {place for place, _ in EXAMPLES} == {REPO, ROWS, GIT, PROBLEMS}
    assert len(EXAMPLES) > 100
    assert {line.split()[1] for _, line in EXAMPLES} >= set(VERBS)


@pytest.mark.usefixtures("builds_here", "trials_here")
@pytest.mark.parametrize(
    ("place", "line"),
    [
        pytest.param(*each, marks=[pytest.mark.slow] * (each[1].split()[1] in LONG))
        for each in EXAMPLES
    ],
)
def test_a_command_works_where_it_is_typed(
    place: str, line: str, places: dict[str, Path], monkeypatch: Patch, capsys: Capsys
) -> None:
    """To its end, or until it needs a GPU; a mistake in its options or names is no excuse."""
    if any(word in line for word in PARSED):
        return parsed(line)
    folder = places[place]
    if {"init", "new"} & {line.split()[1]}:  # each in a folder as it was
        folder = folder.parent / f"copy-{abs(hash(line))}" / folder.name
        folder.mkdir(parents=True)
        if line.split()[1] == "new":
            shutil.copytree(places[ROWS], folder, dirs_exist_ok=True)
            forget(folder, line)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(places[REPO].parent / "cache"))
    code = main(typed(line))
    said = capsys.readouterr()
    lacks = code == 3 and NO_GPU.search(f"{said.out}{said.err}")
    assert code in (0, 1, 5) or lacks, f"{code}: {said.err}"


@pytest.mark.parametrize("line", sorted({line for _, line in EXAMPLES}))
def test_the_options_of_a_command_are_read(line: str) -> None:
    if not line.endswith("--help"):
        parsed(line)


def parsed(line: str) -> None:
    top = command()
    context = top.make_context("workbench", typed(line))
    name, verb, rest = top.resolve_command(context, typed(line))
    verb.make_context(name, rest, parent=context)


def forget(folder: Path, line: str) -> None:
    """The step that a command adds, where the workspace has it."""
    name = line.split()[2]
    ladder = folder / "ablations/rmsnorm/ablation.toml"
    text = ladder.read_text()
    if f'variant = "{name}"' in text:
        ladder.write_text(text[: text.index(f'[[step]]\nvariant = "{name}"')])
        for path in (folder / "kernels/rmsnorm").glob(f"{name}.*"):
            path.unlink()


def test_every_piece_of_python_is_in_a_table_and_compiles() -> None:
    found = [block for page in PAGES if page not in ELSEWHERE for block in blocks(page, "python")]
    assert {block.splitlines()[0].partition("  #")[0] for block in found} == PYTHON.keys()
    for block in found:
        compile(block, "page", "exec")
    named = {*PYTHON.values(), *ELSEWHERE.values()}
    for name in {file for text in named for file in re.findall(r"\w+\.py", text)}:
        assert [*(ROOT / "tests").rglob(name)], name


@pytest.mark.slow
def test_the_recipe_for_several_gpus_starts_a_cluster(tmp_path: Path) -> None:
    (recipe,) = (b for b in blocks("remote.md", "python") if "LocalCluster" in b)
    (tmp_path / "cluster.py").write_text(recipe)
    done = python("cluster.py", cwd=tmp_path, stdin="\n", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    *exports, command, _ = done.stdout.splitlines()
    assert re.fullmatch(r"workbench ablate --all-shapes --on tls://127\.0\.0\.1:\d+", command)
    for line in exports:
        name, _, path = line.removeprefix("export ").partition("=")
        assert name.startswith("DASK_DISTRIBUTED__COMM__TLS__")
        assert Path(path).stat().st_mode & 0o777 == 0o600
