"""Measuring on remote targets: a zip in and a zip out, with a stand-in under every worker."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from _thread import interrupt_main
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from answers import Capsys, Patch, both_of, error_of, not_none
from commits import repository
from remotes import Cards, alive, card, install
from standin import StandIn, stand_in_for_jobs
from workbench.app.executor import Reporter, Task
from workbench.cli.main import main
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.evidence import frames, journal, store
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import CeilingsFile
from workbench.remote import bootstrap, cluster, job, ssh
from workbench.remote.job import (
    AboutJob,
    RemoteJob,
    Result,
    digest,
    exchange,
    framed,
    own_code,
    pack,
    unpack,
)
from workbench.remote.remote_target import Intake, Remote
from workbench.run.plan import Plan
from workbench.run.recording import Recorder
from workbench.study.workspace import find_workspace
from workspaces import GOOD, make, told_in

MODULE = "def run(x):\n    return x\n"
HOST = "gpu1"


class Here:
    """Carries jobs to workers of this machine, as ssh does to a host's."""

    name = HOST

    def results(
        self, jobs: Sequence[bytes], hear: Callable[[Any], None]
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]:
        for i, each in enumerate(jobs):
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "workbench.remote.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            found = exchange(process, [framed(each)], hear)
            yield i, found or ToolFailed(f"the worker ended: exit {process.returncode}")


@pytest.fixture
def one(tmp_path: Path, monkeypatch: Patch) -> Cards:
    """A GPU, on which ``--on gpu1`` measures."""
    monkeypatch.setattr(
        "workbench.remote.remote_target.remote_of",
        lambda name, verb, reporter: Remote(verb, reporter, Here()),
    )
    return install(tmp_path, monkeypatch, [card(0)])


def here(monkeypatch: Patch) -> None:
    """From now on verbs measure in this process, on the same stand-in."""
    StandIn(monkeypatch, lambda run: {"baseline": 10.0, "fix": 8.0}.get(run.variant, 5.0))
    stand_in_for_jobs(monkeypatch)


def workspace(root: Path) -> Path:
    return make(root, {}, {"baseline": MODULE, "fix": MODULE, "fix2": MODULE})


def evidence(root: Path) -> EvidenceFolder:
    return EvidenceFolder(root / "ablations" / "scale" / "evidence" / "nvidia-h200")


def but_for_provenance(folder: EvidenceFolder) -> dict[str, Any]:
    """All records, without where and when; a timing is called after its date."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in folder.root.rglob("*.json*") if p.suffix != ".jsonl"):
        name = path.relative_to(folder.root).as_posix()
        data = told_in(path)
        data.pop("provenance", None)
        found[f"{path.parent.name}/timing" if path.parent.name == "timings" else name] = data
    sessions = journal.load_journal(folder).sessions
    found["journal"] = [(each.shape, each.sessions, each.medians) for each in sessions]
    return found


def ledger(root: Path) -> list[tuple[str, str]]:
    lines = (root / "ablations" / "ledger.jsonl").read_text().splitlines()
    return [(entry["verb"], entry.get("place", "local")) for entry in map(json.loads, lines)]


def ctrl_c_when(is_time: Callable[[], object]) -> None:
    """As if it were typed then."""

    def wait() -> None:
        while not is_time():
            time.sleep(0.05)
        interrupt_main()

    threading.Thread(target=wait, daemon=True).start()


# ---- zips --------------------------------------------------------------------------------------
def task(root: Path, **given: Any) -> Task:
    workspace_ = find_workspace(root)
    study = workspace_.study("scale")
    plan = Plan("large", timed=("baseline", "fix"))
    known = {"study": study, "config": workspace_.config, "folder": evidence(root), "plan": plan}
    return Task(payer=workspace_, **{**known, **given})


def test_a_job_comes_out_of_its_zip_as_it_went_in(tmp_path: Path) -> None:
    study = task(workspace(tmp_path)).study
    sources = job.sources_of(study)
    head = RemoteJob(
        code=own_code(),
        study="scale",
        plan=Plan("large", checked=("fix",), everywhere=True),
        sources={name: digest(data) for name, data in sources.items()},
        config=task(tmp_path).config,
        command=("workbench", "ablate"),
    )
    found, contents = unpack(pack(head, sources.values()), RemoteJob)
    assert found == head
    job.lay_out(found.sources, contents, tmp_path / "there")
    there = find_workspace(tmp_path / "there").study("scale")
    assert job.sources_of(there) == sources
    assert "kernels/scale/fix.py" in sources


def zipped(entries: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in entries.items():
            made.writestr(name, data)
    return out.getvalue()


HEAD = msgspec.json.encode(Result())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no zip", "cannot be read"),
        (zipped({}), "head of a zip is damaged"),
        (zipped({job.HEAD: b"{"}), "head of a zip is damaged"),
        (zipped({job.HEAD: b'{"files": 3}'}), "head of a zip is damaged"),
        (zipped({job.HEAD: HEAD, "../../x": b"x"}), "does not match its sha256"),
        (zipped({job.HEAD: HEAD, "0" * 64: b"x"}), "does not match its sha256"),
        (zipped({job.HEAD: HEAD, "bomb": bytes(job.MOST_BYTES // 64)}), "does not match"),
    ],
)
def test_a_zip_that_was_not_packed_here_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ToolFailed, match=said):
        unpack(data, Result)


def test_a_zip_that_is_too_large_is_not_unpacked(monkeypatch: Patch) -> None:
    bomb = pack(Result(), [bytes(1 << 20)])
    assert len(bomb) < 4096
    monkeypatch.setattr(job, "MOST_BYTES", 1 << 19)
    with pytest.raises(ToolFailed, match="too large"):
        unpack(bomb, Result)
    monkeypatch.setattr(job, "MOST_FILES", 3)
    with pytest.raises(ToolFailed, match="too large"):
        unpack(pack(Result(), [b"1", b"2", b"3"]), Result)


def test_a_zip_that_understates_its_size_is_refused() -> None:
    """What is declared bounds what is unpacked."""
    data = bytes(1 << 20)
    bomb = bytearray(zipped({job.HEAD: HEAD, hashlib.sha256(data).hexdigest(): data}))
    size = len(data).to_bytes(4, "little")
    bomb = bytearray(bytes(bomb).replace(size, (16).to_bytes(4, "little")))
    with pytest.raises(ToolFailed):
        unpack(bytes(bomb), Result)


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "kernels/../../x", "kernels/\0"])
def test_a_source_stays_in_the_workspace(name: str, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="outside of the workspace"):
        job.lay_out({name: digest(b"x")}, {digest(b"x"): b"x"}, tmp_path / "in")
    assert not (tmp_path / "x").exists()


def test_a_job_of_another_workbench_is_refused(one: Cards) -> None:
    remote, told = (
        Remote("check", Reporter(), Here()),
        pack(RemoteJob(code="other", instead=AboutJob())),
    )
    with pytest.raises(EnvironmentLacks, match="another version"):
        list(remote.results([told], print))


# ---- what comes back ---------------------------------------------------------------------------
class Back:
    """A result of ``remote``, to be changed before it is recorded."""

    def __init__(self, root: Path, monkeypatch: Patch) -> None:
        self.task, self.result, self.contents = task(root), Result(), dict[str, bytes]()

        def kept(recorder: Recorder, result: Result, contents: dict[str, bytes]) -> Any:
            self.recorder, self.result, self.contents = recorder, result, contents
            return type("Nothing", (), {"record": lambda self: None})()

        with monkeypatch.context() as patched:
            patched.setattr("workbench.remote.remote_target.Intake", kept)
            Remote("ablate", Reporter(), Here()).perform([self.task], lambda event: None)

    def record(self, **files: bytes | None) -> None:
        """With these files in place of those of the same name."""
        named = {name: self.contents[sha] for name, sha in self.result.files.items()}
        changed = {k: v for k, v in {**named, **files}.items() if v is not None}
        result = msgspec.structs.replace(
            self.result, files={name: digest(data) for name, data in changed.items()}
        )
        contents = {digest(data): data for data in changed.values()}
        Intake(self.recorder, result, contents).record()

    def changed(self, end: str, old: str, new: str) -> dict[str, bytes]:
        """The file that ends so, with other text."""
        (name,) = (name for name in self.result.files if name.endswith(end))
        text = self.contents[self.result.files[name]].decode()
        assert old in text
        return {name: text.replace(old, new).encode()}


def test_what_is_no_evidence_of_the_job_is_refused(
    one: Cards, tmp_path: Path, monkeypatch: Patch
) -> None:
    root = workspace(tmp_path / "ws")
    back = Back(root, monkeypatch)
    print_of_fix = str(back.recorder.of_sources("fix"))
    for files, said in (
        ({"../x.json": b"x"}, "no file of its evidence"),
        ({"variants/../../x.json": b"x"}, "no file of its evidence"),
        ({"/tmp/x.json": b"x"}, "no file of its evidence"),
        ({"other/timings/x.json": b"x"}, "no file of its evidence"),
        ({"tables/x.json.zst": b"x"}, "no file of its evidence"),
        ({"variants/x.json": b"x"}, "cannot be read"),
        (back.changed("variants/fix.json", print_of_fix, "0" * 64), "with other sources"),
        (back.changed("variants/fix.json", '"fix"', '"../fix"'), "with other sources"),
        (back.changed("variants/fix.json", '"large"', '"larger"'), "with other sources"),
    ):
        with pytest.raises(ToolFailed, match=said):
            back.record(**files)
    assert not list(evidence(root).root.rglob("*.json")), "nothing of it is recorded"
    back.record()
    assert (evidence(root).root / "variants" / "fix.json").exists()


def test_a_result_of_another_gpu_is_refused(one: Cards, tmp_path: Path, monkeypatch: Patch) -> None:
    back = Back(workspace(tmp_path / "ws"), monkeypatch)
    back.result = msgspec.structs.replace(back.result, gpu="NVIDIA T4")
    with pytest.raises(ToolFailed, match="measured on NVIDIA T4"):
        back.record()


def test_a_date_is_no_path(one: Cards, tmp_path: Path, monkeypatch: Patch) -> None:
    root = workspace(tmp_path / "ws")
    back = Back(root, monkeypatch)
    (name,) = (name for name in back.result.files if "/timings/" in name)
    data = frames.whole(back.contents[back.result.files[name]]).decode()
    date = json.loads(data)["provenance"]["date"]
    moved = data.replace(date, "../../../2026").encode()
    with pytest.raises(ToolFailed, match="has no date"):
        back.record(**{name: frames.compressed(moved)})


# ---- verbs -------------------------------------------------------------------------------------
def test_a_ladder_measured_remotely_is_the_one_measured_here(
    one: Cards, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    there, own = workspace(tmp_path / "there"), workspace(tmp_path / "own")
    told = both_of(capsys, "ablate", "--on", HOST, project=there)
    assert f"measured on {HOST} in" in told.err
    assert "timed 3 variants, session 1" in told.err, "events come while it measures"
    with monkeypatch.context() as patched:
        here(patched)
        assert main(["ablate", "--project", str(own)]) == 0
    assert capsys.readouterr().out == told.out
    assert but_for_provenance(evidence(there)) == but_for_provenance(evidence(own))
    assert ledger(there) == [("ablate", HOST)]
    ((_, gpu, temporary),) = one.ran
    assert (gpu, Path(temporary).name) == ("GPU-0", "GPU-0")


def test_a_range_of_shapes_is_a_job_each(one: Cards, tmp_path: Path, capsys: Capsys) -> None:
    root = workspace(tmp_path / "ws")
    command = ["sweep", "fix", "--shape", "n=1024..4096*2", "--on", HOST, "--project", str(root)]
    one.fault("crash")
    assert "error: the worker ended: exit -9" in error_of(capsys, *command, code=4)
    sessions = journal.load_journal(evidence(root)).sessions
    assert sorted(each.shape for each in sessions) == ["n2048", "n4096"], "the others are recorded"
    assert main(command) == 0
    assert len(one.ran) == 4


TUNED = """from workbench import cuda

params = cuda.params(warps=4)
kernel = cuda.kernel("baseline.cu", "scale", defines=params)


def run(x):
    return x
"""


def test_a_sweep_and_a_gate_measure_remotely(
    one: Cards, tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD}, {"fix": TUNED})
    on = ["--on", HOST, "--project", str(root)]
    told = both_of(capsys, "sweep", "fix[warps=2|4|8]", "--json", *on)
    (found,) = json.loads(told.out)["sweeps"]
    assert {c["variant"]: c["state"] for c in found["combinations"]} == {
        "fix[warps=2]": "timed",
        "fix": "timed",
        "fix[warps=8]": "timed",
    }
    made = repository(root)
    made.edit("kernels/scale/baseline.cu", "2 * x[i]", "2.5f * x[i]")
    code = main(["gate", "HEAD~1", "--json", *on])
    told = capsys.readouterr()
    assert code in (0, 1, 5), told.err
    (study,) = json.loads(told.out)["studies"]
    timed = {c["variant"]: c["timed"] for c in study["changes"] if c.get("timed")}
    assert set(timed) >= {"baseline"}


def test_ceilings_are_those_measured_here(
    one: Cards, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    there, own = workspace(tmp_path / "there"), workspace(tmp_path / "own")
    monkeypatch.setattr(sys, "argv", ["workbench", "calibrate", "--on", HOST])
    told = both_of(capsys, "calibrate", "--on", HOST, project=there)
    assert "FP64: 5.00 TFLOP/s" in told.err
    with monkeypatch.context() as patched:
        here(patched)
        assert main(["calibrate", "--project", str(own)]) == 0
    tables = [text.partition("\n")[2] for text in (capsys.readouterr().out, told.out)]
    assert tables[0] == tables[1] != ""
    found, mine = (store.read(evidence(root).ceilings, CeilingsFile) for root in (there, own))
    assert (found.ceilings, found.not_collected) == (mine.ceilings, mine.not_collected)
    assert found.provenance.command == f"workbench calibrate --on {HOST}"
    before = evidence(there).ceilings.read_bytes()
    one.fault("hang")
    ctrl_c_when(lambda: len(one.ran) == 2)
    assert main(["calibrate", "--on", HOST, "--project", str(there)]) == 130
    assert "interrupted: nothing was written" in capsys.readouterr().err
    assert not alive(one)
    assert evidence(there).ceilings.read_bytes() == before


# Inputs that are always the same, so that so is what is allowed.
SCALE = """import torch

from factors import TWO


def scale(x):
    return TWO * x


def inputs(rows=8):
    return {"x": torch.linspace(-1, 1, rows * 16, device="cuda").reshape(rows, 16)}
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A file, one that it imports, and nothing else."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (folder / "factors.py").write_text("TWO = 2.0\n")
    (folder / "scale.py").write_text(SCALE)
    return folder


def tried(*given: str) -> int:
    return main(["try", "scale.py", "--no-profile", "--quick", *given])


@pytest.mark.slow
def test_a_file_that_is_tried_remotely_is_printed_as_if_here(
    one: Cards, mine: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    (mine / "workbench.toml").touch()
    versus = ["--vs", "torch.mul(x, 2)"]
    assert tried(*versus, "--on", HOST, "--keep", "doubled", "--json") == 0
    told = capsys.readouterr()
    assert (mine / "kernels" / "doubled" / "factors.py").is_file()
    with monkeypatch.context() as patched:
        here(patched)
        patched.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        assert tried(*versus, "--json") == 0
    found, own = (json.loads(text) for text in (told.out, capsys.readouterr().out))
    for each in (found, own):
        for name in ("workspace", "study", "kept"):
            each.pop(name)
    assert found == own
    assert tried("--vs", "nosuch.mul", "--on", HOST) == 3, "a package is looked for there"
    assert f"on {HOST}: needs nosuch, which is not installed" in capsys.readouterr().err


def test_a_mistake_ends_as_it_does_here(one: Cards, mine: Path, capsys: Capsys) -> None:
    (mine / "scale.py").write_text(SCALE.replace('"x": ', '"x": 1, "y": None and '))
    assert tried("--on", HOST) == 2
    assert "inputs have no tensor" in capsys.readouterr().err


def test_ctrl_c_ends_the_work_there_and_the_same_command_goes_on(
    one: Cards, tmp_path: Path, capsys: Capsys
) -> None:
    root = workspace(tmp_path / "ws")
    one.fault("hang")
    ctrl_c_when(lambda: len(one.ran) == 1)
    command = ["check", "fix", "--on", HOST, "--project", str(root)]
    assert "the same command goes on from there" in error_of(capsys, *command, code=130)
    assert not alive(one)
    assert main(command) == 0


def test_doctor_looks_at_the_target(one: Cards, capsys: Capsys, monkeypatch: Patch) -> None:
    doctor, known = Remote.doctor, list[Any]()

    def once(remote: Remote) -> Any:
        known.extend([] if known else [doctor(remote)])
        return known[0]

    monkeypatch.setattr(Remote, "doctor", once)
    assert main(["doctor", "--on", HOST, "--json"]) in (0, 3)
    told = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row["found"] for row in told["rows"]}
    assert rows["GPU"] == "NVIDIA H200, compute capability 9.0"
    assert main(["doctor", "--on", HOST]) in (0, 3)
    assert told["host"] in capsys.readouterr().out


# ---- names of targets --------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "a;b", "", "a b", "gpu1:$(x)", "gpu1:a b", "gpu1:/x;y"]
)
def test_what_is_no_host_is_refused(name: str, capsys: Capsys) -> None:
    assert "no host that ssh takes" in error_of(capsys, "check", "--on", name)


@pytest.mark.parametrize("name", ["gpu1", "me@10.0.0.7", "gpu1:/opt/venv/bin/python", "h:~/bin/p"])
def test_hosts_are_as_ssh_takes_them(name: str) -> None:
    host = ssh.SshHost(name, print)
    assert host.host == name.partition(":")[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tcp://10.0.0.5:8786", "without TLS"),
        ("tcp://gpu1:8786", "without TLS"),
        ("tcp://localhost:8786", "without TLS"),  # a name is whatever it resolves to
        ("tcp://127.0.0.1.example:8786", "without TLS"),
        ("tls://10.0.0.5", "no address"),
        ("http://127.0.0.1:80", "no address"),
    ],
)
def test_a_scheduler_on_the_network_speaks_tls(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        cluster.DaskCluster(name, print)


def test_without_dask_the_extra_is_named(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EnvironmentLacks, match="not installed") as failed:
        cluster.DaskCluster("tcp://127.0.0.1:8786", print).client()
    assert "[cluster]" in failed.value.hint


# ---- a set-up that fails -----------------------------------------------------------------------
@pytest.mark.parametrize("was_left", [False, True])
def test_an_installation_that_stops_half_way_leaves_nothing(
    was_left: bool, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    def create(folder: Path, **_: object) -> None:
        assert not folder.exists()
        (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)

    monkeypatch.setattr("workbench.remote.bootstrap.venv.create", create)
    failed = subprocess.CompletedProcess[str](["pip"], 1)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda *_, **__: failed)
        if was_left:
            patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if killed
        with pytest.raises(SystemExit) as stopped:
            bootstrap.environment(tmp_path, ["torch"], ["torch"])
    assert stopped.value.code == bootstrap.NO_PACKAGES
    (folder,) = tmp_path.glob("venv-*[!k]") if was_left else [tmp_path / "none"]
    assert folder.exists() == was_left
    said = capsys.readouterr().err
    assert "installing torch into" in said
    assert "delete it to undo that" in said
    assert "is deleted again" in said
    done = subprocess.CompletedProcess[str](["pip"], 0)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert bootstrap.environment(tmp_path, ["torch"], ["torch"]).endswith("bin/python")
    assert ("an earlier installation left half-way" in capsys.readouterr().err) == was_left
    bootstrap.environment(tmp_path, ["torch"], ["torch"])
    assert not capsys.readouterr().err


@pytest.mark.parametrize("when", ["it waits", "before it waits"])
def test_ctrl_c_before_the_job_was_sent_says_what_goes_on(
    when: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    fake = tmp_path / "ssh"
    fake.write_text("#!/bin/sh\necho 'workbench: installing torch' >&2\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    said: list[str] = []
    waits = threading.Event()

    def exchanged(*given: Any) -> bytes:
        if when == "before it waits":
            while not said:
                time.sleep(0.01)
            raise KeyboardInterrupt
        waits.set()
        return job.exchange(*given)

    monkeypatch.setattr("workbench.remote.ssh.exchange", exchanged)
    if when == "it waits":
        ctrl_c_when(lambda: said and waits.is_set())
    with pytest.raises(KeyboardInterrupt):
        list(ssh.SshHost("gpu1", said.append).results([b"job"], print))
    assert said == [
        "gpu1: installing torch",
        "gpu1: nothing was measured; an installation goes on in ~/.cache/workbench/remote",
    ]


# ---- Dask --------------------------------------------------------------------------------------
def test_the_scheduler_of_another_user_is_refused(monkeypatch: Patch) -> None:
    """Whoever answers runs code as this user."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert cluster.listeners(port) == {os.getuid()}
    assert cluster.listeners(port) == set()
    monkeypatch.setattr(cluster, "listeners", lambda port: {0, 4711})
    with pytest.raises(UsageError, match="the user with the id 4711"):
        cluster.DaskCluster("tcp://127.0.0.1:8786", print).client()


def test_what_is_no_bytes_is_no_result(monkeypatch: Patch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "as_completed", lambda futures, loop: futures)

    class Done:
        key, status = "a", "finished"

        def result(self) -> object:
            return {"files": {}}

        def cancel(self) -> None: ...

    ((_, found),) = cluster.DaskCluster("tcp://127.0.0.1:8786", print).taken([Done()], None)
    assert isinstance(found, ToolFailed)


def test_a_scheduler_without_the_workbench_is_named() -> None:
    class Refused:
        status = "error"

        def exception(self) -> Exception:
            error = RuntimeError("Error during deserialization of the task graph.")
            error.__cause__ = ModuleNotFoundError("No module named 'workbench'")
            return error

    found = cluster.DaskCluster("tcp://127.0.0.1:8786", print).failed(Refused())
    assert "failed: No module named 'workbench'" in found.message
    assert not_none(found.hint).startswith("install workbench")


@pytest.mark.slow
def test_a_worker_without_the_workbench_is_an_error(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """Dask ends such a worker at the first task, and the task would wait for ever."""
    distributed = pytest.importorskip("distributed")
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n\n\nclass Without:\n    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] == 'workbench':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n\n\n"
        "sys.meta_path.insert(0, Without())\n"
    )
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with distributed.LocalCluster(n_workers=0, **options) as made:
        address = made.scheduler_address
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
        started = subprocess.Popen(
            [*command, "--nthreads", "1", "--no-dashboard"],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            stderr=subprocess.DEVNULL,
        )
        try:
            assert main(["doctor", "--on", address]) == 3
        finally:
            started.kill()
            started.wait()
    said = capsys.readouterr().err
    assert "1 of 1 workers of" in said
    assert "have no workbench" in said
    assert "hint: install workbench" in said


@pytest.fixture
def two(tmp_path: Path, monkeypatch: Patch) -> Iterator[tuple[Cards, str]]:
    """A scheduler of this machine with a worker for each of two GPUs."""
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    cards = install(tmp_path, monkeypatch, [card(0), card(1)])
    with (
        dask.config.set({"distributed.diagnostics.nvml": False}),  # the fake one has not all of it
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            resources={"GPU": 1},
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as made,
    ):
        yield cards, made.scheduler_address


def test_dask_schedules_a_task_a_shape_and_tries_again(
    two: tuple[Cards, str], tmp_path: Path, capsys: Capsys
) -> None:
    cards, address = two
    root = workspace(tmp_path / "ws")
    cards.fault("kill")
    cards.fault("crash")
    command = ["sweep", "fix", "--shape", "n=1024|2048", "--on", address, "--project", str(root)]
    assert main(command) == 0, capsys.readouterr().err
    sessions = journal.load_journal(evidence(root)).sessions
    assert sorted(each.shape for each in sessions) == ["n1024", "n2048"]
    assert len(cards.ran) == 4, "each fault cost a try, and no more"
    assert all(gpu == Path(folder).name for _, gpu, folder in cards.ran), "a TMPDIR a GPU"
    assert main(command) == 0
    assert len(cards.ran) == 4, "all of it is recorded"


@pytest.mark.slow
def test_a_task_that_is_cancelled_ends(
    two: tuple[Cards, str], tmp_path: Path, capsys: Capsys
) -> None:
    cards, address = two
    root = workspace(tmp_path / "ws")
    cards.fault("hang")
    ctrl_c_when(lambda: len(cards.ran) == 1)
    assert main(["check", "fix", "--on", address, "--project", str(root)]) == 130
    last = time.monotonic() + 30
    while alive(cards) and time.monotonic() < last:
        time.sleep(0.1)
    assert not alive(cards)


def test_a_scheduler_that_is_not_there_is_an_error(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    assert main(["check", "--on", "tcp://127.0.0.1:9"]) == 3
    assert "no scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err
