"""Every command and every piece of Python of README and docs works as it is printed.

``RUN`` are run here, on recorded evidence. ``NEEDS`` need a GPU, another machine or a file of the
reader: their options are read here, and the test that is named runs them. A page of ``ELSEWHERE``
has a test of its own, which follows all of it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from answers import Patch
from git_repository import Repository, repository
from workbench.cli.main import command, main
from workspaces import ROOT, copy_of_fixture

PAGES = {
    path.name: path.read_text("utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
}
ELSEWHERE = {
    "guide.md": "test_guide.py",
    "library.md": "test_written_docs.py",
    "try.md": "test_try.py",
    "variants.md": "test_readme.py",
}
SHIP, PACKAGE = re.findall(r"(workbench ship fix\d+ --as (\S+))", PAGES["ship.md"])[0]
REPO, ROWS, GIT = "this repository", "a workspace of `init rows`", "a git repository with tags"
RUN = {  # where, and the exit code
    "workbench ablate": (REPO, 0),
    "workbench ablate fix1 fix2": (REPO, 0),
    "workbench advise fix1": (REPO, 0),
    "workbench init rows --template cuda": (ROWS, 0),
    "workbench new fix2 --from fix1 --change 'wider loads'": (ROWS, 0),
    "workbench gate main": (GIT, 0),
    "workbench gate v1.2 v1.3 --tier 0": (GIT, 0),
    "workbench bisect fix11 v1.2": (GIT, 1),  # it is neither wrong nor slow there
    "workbench check chosen --study attention_served": (REPO, 0),
    "workbench ablate --study attention_served": (REPO, 0),
    "workbench sweep fix26 --study moe --shape 'mixtral-t1024,T=1|16|128|1024|8192'": (REPO, 0),
    "workbench sweep fix26 --study moe --shape 'deepseek-t1024,T=1|16|128|1024|8192'": (REPO, 0),
    "workbench sweep fix26 --study moe --shape 'qwen3-t1024,T=1|16|128|1024|8192'": (REPO, 0),
    "workbench sweep 'fix2[warps=4|12]'": (REPO, 0),
    SHIP: (REPO, 0),
}
SSH, DASK = "another machine: test_ssh.py", "a cluster: test_remote.py"
SWEEP = "a GPU: test_gpu_sweeps.py"
NEEDS = {
    "workbench doctor": "says what this machine is: test_cli.py",
    "workbench sweep 'fix2[warps=2|4|8]'": SWEEP,
    "workbench ablate --on gpu1": SSH,
    "workbench doctor --on gpu1": SSH,
    "workbench ablate --all-shapes --on tls://10.0.0.5:8786": DASK,
    "workbench sweep 'fix10[groups=2|3|4,stages=3..5+1]'": SWEEP,
    "workbench sweep fix7 fix30 --shape 'S=256..4096*2'": SWEEP,
    "workbench sweep fix30 --shape 'b4h16s2048d64,S=128..16384*2,D=64|128,causal=0|1'": SWEEP,
    "workbench check fix30 --shape 'S=100..700+100'": "a GPU: test_gpu.py",
}
PYTHON = {  # the first line of a block, and the test that runs it; all are compiled here
    "with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):": "test_front_ends.py",
    "from adapters.transformers import register": "test_attention_served.py",
    f"import {PACKAGE.replace('-', '_')}": "test_ship.py",
    "from kernels import get_local_kernel": "test_ship.py",
    "from pathlib import Path": "test_the_recipe_for_several_gpus_starts_a_cluster",
    "import time": "test_slurm.py",
}
OTHERS = re.compile(
    rf"python3 -m venv \.venv|cd \w+|pip install \./{PACKAGE}"
    r"|pip install -e '?\.(\[(?P<extra>\w+)\])?'?|pytest(?P<pytest>.*)"
    r"|python -m (?P<module>[\w.]+)"
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


def test_every_command_is_in_a_table() -> None:
    verbs = {one for one in printed() if one.startswith("workbench ")}
    assert verbs == RUN.keys() | NEEDS.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for one in printed() - verbs:
        found = OTHERS.fullmatch(one)
        assert found is not None, one
        assert found["extra"] is None or found["extra"] in project["optional-dependencies"], one
        module = (found["module"] or "").replace(".", "/")
        assert not module or module == "venv" or (ROOT / f"{module}.py").is_file(), one
        files = re.findall(r"\S+\.py", found["pytest"] or "")
        assert all((ROOT / file).is_file() for file in files), one


@pytest.mark.parametrize("line", sorted({*RUN, *NEEDS}))
def test_the_options_of_a_command_are_read(line: str) -> None:
    _, *arguments = shlex.split(line)
    top = command()
    context = top.make_context("workbench", list(arguments))
    name, verb, rest = top.resolve_command(context, arguments)
    verb.make_context(name, rest, parent=context)


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repo")
    for name in ("kernels", "ablations", "templates"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "workbench.toml", root)
    return root


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    made = repository(copy_of_fixture(tmp_path_factory.mktemp("git"), "attention"))
    made.git("tag", "v1.2")
    made.edit("kernels/attention/fix1.cu", "\n", "\n\n")
    made.git("tag", "v1.3")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN)
def test_a_command_works_as_printed(
    line: str, repo: Path, rows: Path, tagged: Repository, monkeypatch: Patch
) -> None:
    where, code = RUN[line]
    folder = {REPO: repo, ROWS: rows / "rows", GIT: tagged.workspace}[where]
    monkeypatch.chdir(folder if folder.is_dir() else rows)
    assert main(shlex.split(line)[1:]) == code


def test_every_piece_of_python_is_in_a_table_and_compiles() -> None:
    found = [block for page in PAGES if page not in ELSEWHERE for block in blocks(page, "python")]
    assert {block.splitlines()[0].partition("  #")[0] for block in found} == PYTHON.keys()
    for block in found:
        compile(block, "page", "exec")
    named = {*PYTHON.values(), *ELSEWHERE.values(), *NEEDS.values()}
    for name in {file for text in named for file in re.findall(r"\w+\.py", text)}:
        assert (ROOT / "tests" / name).is_file(), name


@pytest.mark.slow
def test_the_recipe_for_several_gpus_starts_a_cluster(tmp_path: Path) -> None:
    (recipe,) = (b for b in blocks("remote.md", "python") if "LocalCluster" in b)
    (tmp_path / "cluster.py").write_text(recipe)
    done = subprocess.run(
        [sys.executable, "cluster.py"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        input="\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *exports, command, _ = done.stdout.splitlines()
    assert re.fullmatch(r"workbench ablate --all-shapes --on tls://127\.0\.0\.1:\d+", command)
    for line in exports:
        name, _, path = line.removeprefix("export ").partition("=")
        assert name.startswith("DASK_DISTRIBUTED__COMM__TLS__")
        assert Path(path).stat().st_mode & 0o777 == 0o600
