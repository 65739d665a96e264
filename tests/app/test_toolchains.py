"""Two environments compared: each builds with its own Python, and their sessions alternate."""

from __future__ import annotations

import json
import os
import re
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import inprocess
from answers import Capsys, Patch, error_of, not_none
from app.test_gate import SLOW
from made_records import built_kernel
from standin import ENVIRONMENT, Run, StandIn
from workbench.app import gate as app_gate
from workbench.app.gate import side_of
from workbench.cli.main import main
from workbench.cuda.cubin import ElfSection, _of_the_code
from workbench.errors import EnvironmentLacks, UsageError
from workbench.judge.commits import AtCommit
from workbench.run import compilation, measurement, process
from workbench.run.process import WORKERS_OF, Toolchain, WorkerEnd, worker_environment
from workbench.run.protocol import Built, DeviceFound, Done, Event, SessionsDone, SessionsJob
from workbench.run.repository import Commit
from workbench.study.workspace import find_workspace
from workspaces import GOOD, make, rewrite

NEWER = "99.1"  # of NVRTC, in the newer environment


def environment(folder: Path, nvrtc: str = "", *, empty: bool = False) -> Path:
    """A virtual environment that has this one's packages, and says that it has another NVRTC."""
    venv.create(folder)
    (packages,) = folder.glob("lib/python3*/site-packages")
    if not empty:
        ours = [entry for entry in sys.path if entry.endswith("site-packages")]
        (packages / "base.pth").write_text("\n".join(ours))
    if nvrtc:
        (about := packages / f"nvidia-cuda-nvrtc-{nvrtc}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: nvidia-cuda-nvrtc\nVersion: {nvrtc}\n"
        (about / "METADATA").write_text(text)
    return folder / "bin" / "python3"


@pytest.fixture(scope="module")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The options of two environments."""
    folder = tmp_path_factory.mktemp("environments")
    old, new = environment(folder / "old"), environment(folder / "new", NEWER)
    return "--env", f"old={old}", "--env", f"new={new}"


@pytest.fixture
def seen(monkeypatch: Patch) -> list[tuple[Toolchain, dict[str, str]]]:
    """The environments of workers, which work here; the newer compiler makes a division of a
    product.
    """
    workers: list[tuple[Toolchain, dict[str, str]]] = []

    def run_worker(scratch: Path, *job: Any) -> WorkerEnd:
        toolchain = not_none(WORKERS_OF.get())
        workers.append((toolchain, worker_environment(scratch)))
        if toolchain.name == "new":
            rewrite(scratch / "kernels" / "scale" / "baseline.cu", "2 * x[i]", "x[i] / 3")
        return inprocess.run_worker(scratch, *job)

    monkeypatch.setattr(compilation, "run_worker", run_worker)
    return workers


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace in no repository."""
    return make(tmp_path / "gpu", {"baseline": GOOD, "fast": SLOW})


def gated(capsys: Capsys, root: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["gate", *arguments, "--json", "--project", str(root)])
    told = json.loads(capsys.readouterr().out)
    told["rows"] = {change["variant"]: change for change in told["studies"][0]["changes"]}
    return code, told


def test_another_compiler_makes_other_code(
    root: Path, capsys: Capsys, pythons: Sequence[str], seen: list[tuple[Toolchain, dict[str, str]]]
) -> None:
    code, told = gated(capsys, root, *pythons, "--cache", str(root / "kept"))
    assert (code, told["base"], told["head"]) == (5, "old", "new")
    rows = told["rows"]
    verdicts = {name: row["verdict"] for name, row in rows.items()}
    assert verdicts == {"baseline": "cannot tell", "fast": "same"}
    assert rows["fast"]["why"]["message"].startswith("its machine code is the same")
    assert rows["baseline"]["cause"] == "compiler"
    differs, machine_code = (finding["message"] for finding in rows["baseline"]["also"])
    assert re.fullmatch(rf"also differs: nvidia-cuda-nvrtc \S+ and {NEWER}", differs)
    assert machine_code.startswith("scale: ")
    assert {path.name for path in (root / "kept").iterdir()} == {"old", "new"}
    for toolchain, variables in seen:
        assert variables["PATH"].split(os.pathsep)[0] == str(toolchain.python.parent)
        assert variables["PYTHONPATH"] == str(toolchain.links)
    assert {toolchain.name for toolchain, _ in seen} == {"old", "new"}


def test_what_an_environment_lacks_is_linked(tmp_path: Path, monkeypatch: Patch) -> None:
    """Only for the same Python: a compiled package is of one version."""
    versions = dict.fromkeys(process.NEEDED, "1")
    told = [sys.implementation.cache_tag, "/x/bin", versions]
    monkeypatch.setattr(process, "ran", lambda *a: (0, f"a warning\n{json.dumps(told)}"))
    python = Path("/e/bin/python3")
    made = process.toolchain_of("a", python, tmp_path / "links", tmp_path / "builds")
    assert made.paths == ("/e/bin", "/x/bin")
    assert {path.name for path in made.links.iterdir()} == {*process.LINKED, "workbench"}
    told[0] = "cpython-399"
    with pytest.raises(EnvironmentLacks, match="lacks msgspec and zstandard") as error:
        process.toolchain_of("a", python, tmp_path / "more", tmp_path / "builds")
    assert error.value.hint == "/e/bin/python3 -m pip install msgspec zstandard"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a commit to compare with, or two environments"),
        (["HEAD", "--env", "a=b"], "and not both"),
        (["--env", "a={python}"], "two environments with different names"),
        (["--env", "a={python}", "--env", "a={python}"], "two environments with different names"),
        (["--env", "a={python}", "--env", "={python}"], "is no python3 with a name"),
        (["--env", "a={python}", "--env", "b=/nowhere/python3"], "is no python3 with a name"),
        (["--env", "a={python}", "--env", "b={empty}"], "lacks torch and numpy and cuda-core"),
    ],
)
def test_mistakes(
    root: Path, tmp_path: Path, capsys: Capsys, pythons: Sequence[str],
    arguments: list[str], told: str,
) -> None:  # fmt: skip
    names, code = {"python": pythons[1].partition("=")[2], "empty": ""}, UsageError.exit_code
    if "b={empty}" in arguments:
        names["empty"] = str(environment(tmp_path / "empty", empty=True))
        code = EnvironmentLacks.exit_code
    given = [argument.format(**names) for argument in arguments]
    error = error_of(capsys, "gate", *given, project=root, code=code)
    assert told in error
    assert "hint: " in error


# ---- times ---------------------------------------------------------------------------------
class InTurn:
    """A worker of sessions, which has another turn while it is given one."""

    order: list[str]

    def __init__(self, gpu: StandIn, job: SessionsJob) -> None:
        self.gpu, self.job, self.variants = gpu, job, [""]

    def give_turn(self, variants: list[str]) -> None:
        self.variants = variants

    def watch(self, limit: float, on_event: Callable[[Event], None]) -> WorkerEnd:
        number = 0
        on_event(DeviceFound(environment=ENVIRONMENT))
        while variants := self.variants:
            self.order.append(not_none(WORKERS_OF.get()).name[0])
            on_event(self.gpu.session(number, self.job, variants))
            number += 1
            on_event(SessionsDone(sessions=number))
        return WorkerEnd(events=[Done()], returncode=0)

    def kill(self) -> None:
        pass


@pytest.fixture
def in_turns(monkeypatch: Patch, pythons: Sequence[str]) -> Callable[..., list[str]]:
    """Times by environment and variant, of a GPU that is not there; ``baseline`` is other code."""

    def toolchain_of(name: str, python: Path, links: Path, builds: Path) -> Toolchain:
        return Toolchain(name, python, (), links, builds, {})

    def build(self: StandIn, run: Run) -> Event:
        toolchain = WORKERS_OF.get() if run.variant == "baseline" else None
        code = f"{run.variant}{toolchain.name if toolchain else ''}"
        kernels = (built_kernel(kernel="scale", code=code),)
        return Built(
            variant=run.variant, arch="sm_90a", kernels=kernels, defines=("",), warnings=()
        )

    def start(times: dict[tuple[str, str], float], noise: float = 1e-3) -> list[str]:
        def time(run: Run) -> float:
            return times.get((not_none(WORKERS_OF.get()).name, run.variant), 10.0)

        gpu = StandIn(monkeypatch, time, noise=noise)
        order: list[str] = []
        worker = type("Worker", (InTurn,), {"order": order})
        monkeypatch.setattr(StandIn, "build", build)
        monkeypatch.setattr(compilation, "run_worker", gpu.work)
        monkeypatch.setattr(measurement, "Worker", lambda scratch, job, *_, **__: worker(gpu, job))
        monkeypatch.setattr(app_gate, "toolchain_of", toolchain_of)
        monkeypatch.setattr(app_gate, "with_machine_code", lambda executor, changes, *more: changes)
        return order

    return start


@pytest.mark.parametrize(("time", "verdict", "code"), [(12.0, "slower", 1), (10.0, "same", 0)])
def test_sessions_of_two_environments_alternate(
    root: Path, capsys: Capsys, pythons: Sequence[str], in_turns: Any,
    time: float, verdict: str, code: int,
) -> None:  # fmt: skip
    order = in_turns({("new", "baseline"): time})
    answer, told = gated(capsys, root, *pythons)
    row = told["rows"]["baseline"]
    assert (answer, row["verdict"], row["tier"]) == (code, verdict, 2)
    assert "".join(order) == "onno" * 3  # six sessions each: five are no even number
    assert row["timed"]["ratio"]["ratio"] == pytest.approx(10 / time, rel=0.01)
    assert row["timed"]["ratio"]["level"] == 95
    assert [each["variant"] for each in row["timed"]["controls"]] == ["fast"]
    assert told["rows"]["fast"]["verdict"] == "same"


def test_an_open_verdict_has_as_many_sessions_again(
    root: Path, capsys: Capsys, pythons: Sequence[str], in_turns: Any
) -> None:
    order = in_turns({}, noise=0.1)
    _, told = gated(capsys, root, *pythons)
    assert "".join(order) == "onno" * 6
    assert told["rows"]["baseline"]["timed"]["ratio"]["level"] == 99


def test_a_control_between_environments_takes_the_verdict_away(
    root: Path, capsys: Capsys, pythons: Sequence[str], in_turns: Any
) -> None:
    in_turns({("new", "baseline"): 12.0, ("new", "fast"): 11.0})
    code, told = gated(capsys, root, *pythons)
    row = told["rows"]["baseline"]
    assert (code, row["verdict"], row["cause"]) == (5, "cannot tell", "noise")
    assert row["why"]["message"].startswith("the A/A control of fast, the same kernel, is 0.9")


def test_an_error_of_one_environment_ends_the_other(
    root: Path, capsys: Capsys, pythons: Sequence[str], in_turns: Any, monkeypatch: Patch
) -> None:
    order = in_turns({})
    plain = StandIn.session

    def session(self: StandIn, number: int, *more: Any) -> Any:
        if order[-1] == "n" and number == 1:
            raise UsageError("the new one stopped", hint="look at it")
        return plain(self, number, *more)

    monkeypatch.setattr(StandIn, "session", session)
    assert "the new one stopped" in error_of(capsys, "gate", *pythons, project=root)
    assert "".join(order) == "onn"


def test_a_reference_of_torch_is_a_control_if_no_library_differs() -> None:
    """Where all machine code is other code. A copy in CUDA C is compiled by what differs."""
    workspace = find_workspace(Path(__file__).parents[2])
    study = side_of(Commit("new", "new"), workspace, "transpose")

    def at(**packages: str) -> AtCommit:
        versions = {"torch": "1", "nvidia-cuda-nvrtc": "1", **packages}
        return AtCommit("f", "p", "h", "m", packages=versions)

    old, new = at(), at(**{"nvidia-cuda-nvrtc": "2"})
    assert app_gate.is_control(study, "eager", old, new)
    assert not app_gate.is_control(study, "copy", old, new)
    assert not app_gate.is_control(study, "eager", old, at(torch="2"))


def test_attributes_that_tell_of_the_compiler_alone_are_no_code() -> None:
    def of_the_code(text: str) -> ElfSection:
        return _of_the_code(ElfSection(".nv.info.k", len(bytes.fromhex(text)), bytes.fromhex(text)))

    old = "0437040082000000 031bff00 041704000100f021"
    new = "0466040003000000 0437040087000000 041704000100f021 036b0100 026d0000 031bff00"
    assert of_the_code(old) == of_the_code(new)
    assert of_the_code(old) != of_the_code(new.replace("ff", "fe"))
