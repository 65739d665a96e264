"""Measuring on remote targets: a zip in and a zip out, with a stand-in under every worker."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from answers import Capsys, Patch, both_of, error_of, json_of, not_none
from git_repository import repository
from remote_gpus import Cards, alive, card, install
from standin import StandIn, stand_in_for_jobs
from workbench.app.executor import Reporter, Task
from workbench.cli.main import main
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError
from workbench.evidence import journal
from workbench.evidence.store import EvidenceFolder
from workbench.remote import bootstrap, remote_target, worker
from workbench.remote.remote_target import Remote, record
from workbench.remote.worker import RemoteJob, Result, pack, unpack
from workbench.run.measurement import Plan
from workbench.run.protocol import ErrorText
from workbench.run.recording import Recorder
from workbench.study.files import compressed, decompressed
from workbench.study.workspace import find_workspace
from workspaces import GOOD, TUNED, executable, make, rewrite, told_in

MODULE = "def run(x):\n    return x\n"
HOST = "gpu1"


@pytest.fixture
def one(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Patch) -> Cards:
    """A GPU, on which ``--on gpu1`` measures: an ssh that stays on this machine."""
    cache = tmp_path_factory.getbasetemp() / "cache"  # where it compiles the workbench once
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    return install(tmp_path, monkeypatch, [card(0)])


def remote() -> Remote:
    return remote_target.SshHost(HOST, Reporter())


def here(monkeypatch: Patch) -> None:
    """From now on verbs measure in this process, on the same stand-in."""
    StandIn(monkeypatch, lambda run: {"baseline": 10.0, "fix": 8.0}.get(run.variant, 5.0))
    stand_in_for_jobs(monkeypatch)


def workspace(root: Path) -> Path:
    return make(root, {}, {"baseline": MODULE, "fix": MODULE, "fix2": MODULE})


def over_sizes(root: Path, *sizes: int) -> Path:
    """The workspace with a shape for each of the sizes."""
    path = root / "kernels" / "scale" / "study.py"
    shapes = ", ".join(f'"n{n}": Shape(n={n})' for n in sizes)
    rewrite(path, '"large": Shape(n=4194304)', shapes)
    rewrite(path, '"large"', f'"n{sizes[0]}"')
    return root


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


def ctrl_c_when(is_time: Callable[[], object]) -> None:
    """As if it were typed then."""

    def wait() -> None:
        while not is_time():
            time.sleep(0.05)
        time.sleep(0.5)  # Popen, which has just started it, may not be interrupted
        signal.pthread_kill(not_none(threading.main_thread().ident), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def fake_ssh(folder: Path, text: str, monkeypatch: Patch) -> None:
    folder.mkdir()
    executable(folder / "ssh", f"#!/bin/sh\n{text}\n")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_an_ssh_that_says_nothing_is_given_up(
    one: Cards, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """It does not even read what is sent, which is more than a pipe holds."""
    monkeypatch.setattr(bootstrap, "FIRST_SECONDS", 1.0)
    fake_ssh(tmp_path / "silent", "exec sleep 600", monkeypatch)
    said = error_of(capsys, "check", "--on", HOST, code=3)
    assert "ssh does not reach gpu1, or lost it: nothing came for 1 s" in said


# ---- zips --------------------------------------------------------------------------------------
def task(root: Path, **given: Any) -> Task:
    workspace_ = find_workspace(root)
    study = workspace_.study("scale")
    plan = Plan("large", timed=("baseline", "fix"))
    known = {"study": study, "config": workspace_.config, "folder": evidence(root), "plan": plan}
    return Task(**{**known, **given})


def test_a_job_comes_out_of_its_zip_as_it_went_in(tmp_path: Path) -> None:
    given = task(workspace(tmp_path))
    sources = worker.files_below(given.study.folder, "kernels/scale/")
    plan = Plan("large", checked=("fix",), everywhere=True)
    command = ("workbench", "ablate")
    head = RemoteJob(study="scale", plan=plan, config=given.config, command=command)
    assert unpack(pack(head, sources), RemoteJob) == (head, sources)
    assert sources["kernels/scale/fix.py"] == MODULE.encode()


def zipped(files: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return out.getvalue()


HEAD = {worker.HEAD: msgspec.json.encode(Result())}
CONTENT = zipped({**HEAD, "builds/x": b"content"})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"no zip", "not a zip file"),
        ({"files": {}}, "not 'dict'"),
        (zipped({}), "truncated"),
        (zipped({worker.HEAD: b"{"}), "truncated"),
        (zipped({worker.HEAD: b'{"packages": "x"}'}), "packages"),
        (CONTENT.replace(b"content", b"changed"), "Bad CRC-32"),
        (zipped({**HEAD, "bomb": bytes(1 << 20)}, zipfile.ZIP_DEFLATED), "is compressed"),
    ],
)
def test_a_zip_that_was_not_packed_here_is_refused(data: Any, said: str) -> None:
    with pytest.raises(ToolFailed, match=f"cannot be read: .*{said}"):
        unpack(data, Result)


@pytest.mark.parametrize(
    ("bound", "value"), [("bounds.JOB_FILES", 3), ("remote.worker.MAX_BYTES", 1 << 19)]
)
def test_a_zip_that_is_too_large_is_not_unpacked(
    bound: str, value: int, monkeypatch: Patch
) -> None:
    large = pack(Result(), {"1": bytes(1 << 20), "2": b"2", "3": b"3"})
    assert unpack(large, Result)
    monkeypatch.setattr(f"workbench.{bound}", value)
    with pytest.raises(ToolFailed, match="too large"):
        unpack(large, Result)


@pytest.mark.parametrize("name", ["/tmp/x-of-a-job", "kernels/../../x"])
def test_a_source_stays_in_the_workspace(name: str, one: Cards, tmp_path: Path) -> None:
    job = pack(RemoteJob(gpu="NVIDIA H200", study="scale"), {name: b"x"})
    with pytest.raises(UsageError, match="leads out of the workspace"):
        list(remote().results([job], print))
    assert not list(tmp_path.rglob("x"))
    assert not Path("/tmp/x-of-a-job").exists()


# ---- what comes back ---------------------------------------------------------------------------
class Back:
    """A result, to be changed before it is recorded."""

    def __init__(self, root: Path, monkeypatch: Patch) -> None:
        def kept(recorder: Recorder, result: Result, files: dict[str, bytes]) -> None:
            self.recorder, self.result, self.files = recorder, result, files

        with monkeypatch.context() as patched:
            patched.setattr(remote_target, "record", kept)
            remote().perform([task(root)], lambda event: None)

    def record(self, **files: bytes) -> None:
        """With these files in place of those of the same name."""
        record(self.recorder, self.result, {**self.files, **files})

    def changed(self, end: str, old: str, new: str) -> dict[str, bytes]:
        """The file that ends so, with other text."""
        (name,) = (name for name in self.files if name.endswith(end))
        data = self.files[name]
        text = (decompressed(data) if end.endswith(".zst") else data).decode()
        assert old in text
        changed = text.replace(old, new).encode()
        return {name: compressed(changed) if end.endswith(".zst") else changed}


def test_what_is_no_evidence_of_the_job_is_refused(
    one: Cards, tmp_path: Path, monkeypatch: Patch
) -> None:
    root = workspace(tmp_path / "ws")
    back = Back(root, monkeypatch)
    fingerprint = str(back.recorder.expected("fix", None))
    for files, said in (
        ({"../x.json": b"x"}, "no file of its evidence"),
        ({"variants/../../x.json": b"x"}, "no file of its evidence"),
        ({"/tmp/x.json": b"x"}, "no file of its evidence"),
        ({"other/timings/x.json": b"x"}, "no file of its evidence"),
        ({"variants/x.json": b"x"}, "cannot be read"),
        (back.changed("variants/fix.json", fingerprint, "0" * 64), "with other sources"),
        (back.changed("variants/fix.json", '"fix"', '"../fix"'), "with other sources"),
        (back.changed("variants/fix.json", '"large"', '"larger"'), "with other sources"),
        (back.changed(".json.zst", '"shape": "large"', '"shape": "../x"'), "of another shape"),
        (back.changed(".json.zst", '"date": "2', '"date": "../../../2'), "has no date"),
    ):
        with pytest.raises(ToolFailed, match=said):
            back.record(**files)
    whole = back.result
    for gpu in (card(0, name="NVIDIA T4"), None):
        back.result = msgspec.structs.replace(whole, gpu=gpu)
        with pytest.raises(ToolFailed, match=f"measured on {gpu.name if gpu else 'no GPU'}"):
            back.record()
    back.result = whole
    assert not list(evidence(root).root.rglob("*.json")), "nothing of it is recorded"
    name = next(name for name in back.files if name.endswith("variants/fix.json"))
    empty: dict[str, Any] = {"checks": {}, "build": None, "variant": "../../x"}
    back.record(**{name: json.dumps(json.loads(back.files[name]) | empty).encode()})
    assert not list(tmp_path.rglob("x.json")), "a name is no path"
    back.record()
    assert (evidence(root).root / "variants" / "fix.json").exists()


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
    ((_, gpu, temporary),) = one.ran
    assert (gpu, Path(temporary).name) == ("GPU-0", "GPU-0")


@pytest.mark.slow
def test_several_shapes_are_a_job_each(one: Cards, tmp_path: Path, capsys: Capsys) -> None:
    root = over_sizes(workspace(tmp_path / "ws"), 4096, 2048, 1024)
    command = ["ablate", "--no-profile", "--all-shapes", "--on", HOST, "--project", str(root)]
    one.fault("crash")
    told = error_of(capsys, *command, code=4)
    assert "error: the worker on gpu1 ended with exit code 137" in told
    sessions = journal.load_journal(evidence(root)).sessions
    assert len({each.shape for each in sessions}) == 2, "the others are recorded"
    assert main(command) == 0
    assert len(one.ran) == 4


@pytest.mark.slow
def test_a_sweep_and_a_gate_measure_remotely(
    one: Cards, tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD}, {"fix": TUNED})
    told = json_of(capsys, "sweep", "fix[warps=2|4|8]", "--on", HOST, project=root)
    (found,) = told["sweeps"]
    states = {c["variant"]: c["state"] for c in found["combinations"]}
    assert states == dict.fromkeys(("fix[warps=2]", "fix", "fix[warps=8]"), "timed")
    repository(root).edit("kernels/scale/baseline.cu", "2 * x[i]", "2.5f * x[i]")
    code = main(["gate", "HEAD~1", "--json", "--on", HOST, "--project", str(root)])
    shown = capsys.readouterr()
    assert code in (0, 1, 5), shown.err
    (study,) = json.loads(shown.out)["studies"]
    timed = {c["variant"]: c["timed"] for c in study["changes"] if c.get("timed")}
    assert set(timed) >= {"baseline"}


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


def test_a_mistake_ends_as_it_does_here() -> None:
    there = UsageError("inputs have no tensor", hint="add one")
    here = remote().error(ErrorText.of(there))
    assert (here.exit_code, here.message, here.hint) == (2, there.message, there.hint)


def test_ctrl_c_ends_the_work_there_and_the_same_command_goes_on(
    one: Cards, tmp_path: Path, capsys: Capsys
) -> None:
    root = workspace(tmp_path / "ws")
    one.fault("hang")
    ctrl_c_when(lambda: len(one.ran) >= 1)
    command = ["check", "fix", "--on", HOST, "--project", str(root)]
    assert "the same command goes on from there" in error_of(capsys, *command, code=130)
    assert not alive(one)
    assert main(command) == 0


# ---- names of targets --------------------------------------------------------------------------
NO_HOST, NO_TLS = "no host that ssh takes", "no address of a Dask scheduler with TLS"
NO_HOSTS = ("-oProxyCommand=x", "a;b", "", "a b", "gpu1:$(x)", "gpu1:a b", "gpu1:/x;y")
LOCAL = "tcp://127.0.0.1:8786"  # whoever answers at the address runs code as this user
NO_SCHEDULERS = (LOCAL, "tcp://10.0.0.5:8786", "tls://10.0.0.5", "tls://a b:1", "http://h:80")


@pytest.mark.parametrize(
    ("name", "said"),
    [*((name, NO_HOST) for name in NO_HOSTS), *((name, NO_TLS) for name in NO_SCHEDULERS)],
)
def test_what_is_no_target_is_refused(name: str, said: str, capsys: Capsys) -> None:
    assert said in error_of(capsys, "check", "--on", name)


@pytest.mark.parametrize("name", ["gpu1", "me@10.0.0.7", "gpu1:/opt/venv/bin/python", "h:~/bin/p"])
def test_hosts_are_as_ssh_takes_them(name: str) -> None:
    host = remote_target.SshHost(name, Reporter())
    assert host.host == name.partition(":")[0]


def test_without_dask_the_extra_is_named(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EnvironmentLacks, match="not installed") as failed:
        remote_target.DaskCluster("tls://127.0.0.1:8786", Reporter()).client()
    assert "[cluster]" in failed.value.hint


# ---- a set-up that fails -----------------------------------------------------------------------
@pytest.mark.parametrize("was_killed", [False, True])
def test_an_installation_that_stops_half_way_leaves_nothing(
    was_killed: bool, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    def create(folder: Path, *, clear: bool, with_pip: bool) -> None:
        assert with_pip
        venv.EnvBuilder(clear=clear).create(folder)
        assert not (folder / "half").exists()
        (folder / "half").touch()

    monkeypatch.setattr("workbench.remote.bootstrap.venv.create", create)
    started = subprocess.Popen
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", lambda *_, **__: started(["false"]))
        if was_killed:
            patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(SystemExit) as stopped:
            bootstrap.environment(tmp_path, ["torch"], ["torch"])
    assert stopped.value.code == bootstrap.NO_PACKAGES
    assert len(list(tmp_path.glob("venv-*/"))) == was_killed
    said = capsys.readouterr().err
    assert "installing torch into" in said
    assert "delete it to undo that" in said
    assert "is deleted again" in said
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started(["true"]))
    for said in ("installing torch into", ""):  # once
        assert bootstrap.environment(tmp_path, ["torch"], ["torch"]).endswith("bin/python")
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [("msgspec>=0.1", True), ("msgspec>=900,<901", False), ("no-such-package>=1", False)],
)
def test_versions_of_packages_are_compared(
    requirement: str, is_met: bool, monkeypatch: Patch
) -> None:
    """Whatever the process imported before: setuptools warns about distutils as pip is loaded."""
    for name in [name for name in sys.modules if name == "pip" or name.startswith("pip.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "distutils", ModuleType("distutils"))
    assert bootstrap.is_met(requirement) == is_met


def test_ctrl_c_before_the_job_was_sent_says_what_goes_on(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    installs = "echo 'workbench: installing torch' >&2\nexec sleep 60"
    fake_ssh(tmp_path / "fake", installs, monkeypatch)
    reporter, said = Reporter(), list[str]()
    monkeypatch.setattr(reporter, "note", said.append)
    ctrl_c_when(lambda: said)
    with pytest.raises(KeyboardInterrupt):
        list(remote_target.SshHost("gpu1", reporter).carry([b"job"], print))
    assert said == [
        "gpu1: installing torch",
        "gpu1 sent no result; an installation by pip goes on there",
    ]


def test_a_lost_connection_says_what_to_do(
    one: Cards, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """What ssh says goes into the error; half a result is none."""
    lost = "echo 'Timeout, server not responding.' >&2; exit 255"
    fake_ssh(tmp_path / "lost", f"head -c 1000 > /dev/null; printf PK; {lost}", monkeypatch)
    said = error_of(capsys, "check", "--on", HOST, code=3)
    assert "ssh does not reach gpu1, or lost it: Timeout, server not responding." in said
    assert "run the same command again: it measures what is missing" in said


# ---- Dask --------------------------------------------------------------------------------------
def test_a_task_that_fails_says_what_to_do() -> None:
    class Failed:
        status = "error"

        def exception(self) -> Exception:
            return RuntimeError("the worker process ended with exit code 1: no space left")

    error = remote_target.DaskCluster("tls://127.0.0.1:8786", Reporter()).failure(Failed())
    assert "exit code 1: no space left" in error.message
    assert error.hint == remote_target.AGAIN


@contextmanager
def cluster(**options: Any) -> Iterator[tuple[Any, Any]]:
    """A scheduler of this machine and its certificates, which clients find in the configuration."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    options = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50, **options}
    with (
        dask.config.set({"distributed.diagnostics.nvml": False}),  # the fake one has not all of it
        tls() as security,
        distributed.LocalCluster(
            host="127.0.0.1", protocol="tls://", security=security, **options
        ) as made,
    ):
        yield made, security


@contextmanager
def tls() -> Iterator[Any]:
    """Certificates, which clients find in Dask's configuration."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    made = distributed.Security.temporary()
    client = {"ca-file": made.tls_ca_file, "client.cert": made.tls_client_cert}
    files = client | {"client.key": made.tls_client_key}
    with dask.config.set({f"distributed.comm.tls.{name}": text for name, text in files.items()}):
        yield made


@pytest.mark.slow
def test_a_worker_needs_no_workbench(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n\n\nclass Without:\n    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] == 'workbench':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n\n\n"
        "if 'distributed.cli.dask_worker' in sys.orig_argv:\n"
        "    sys.meta_path.insert(0, Without())\n"
    )
    with cluster(n_workers=0) as (made, security):
        address = made.scheduler_address
        files = {"ca-file": security.tls_ca_file, "cert": security.tls_worker_cert}
        for name, text in (files | {"key": security.tls_worker_key}).items():
            (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny"]
        command += [f"--tls-{name}={tmp_path / name}" for name in ("ca-file", "cert", "key")]
        started = subprocess.Popen(
            [*command, "--nthreads", "1", "--no-dashboard"],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)},
            stderr=subprocess.DEVNULL,
        )
        try:
            with pytest.raises(EnvironmentLacks, match=f"on {address}: no NVIDIA GPU was found"):
                assert remote_target.DaskCluster(address, Reporter()).gpu is None
        finally:
            started.kill()
            started.wait()


@pytest.fixture
def two(tmp_path: Path, monkeypatch: Patch) -> Iterator[tuple[Cards, str]]:
    """A scheduler of this machine with a worker for each of two GPUs."""
    pytest.importorskip("cryptography")
    cards = install(tmp_path, monkeypatch, [card(0), card(1)])
    with cluster(n_workers=2, threads_per_worker=1, resources={"GPU": 1}) as (made, _):
        yield cards, made.scheduler_address


@pytest.mark.slow
def test_dask_schedules_a_task_a_shape_and_tries_again(
    two: tuple[Cards, str], tmp_path: Path, capsys: Capsys
) -> None:
    cards, address = two
    root = over_sizes(workspace(tmp_path / "ws"), 1024, 2048)
    cards.fault("kill")
    cards.fault("crash")
    command = ["ablate", "--no-profile", "--all-shapes", "--on", address, "--project", str(root)]
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
    ctrl_c_when(lambda: len(cards.ran) >= 1)
    assert main(["check", "fix", "--on", address, "--project", str(root)]) == 130
    last = time.monotonic() + 120
    while alive(cards) and time.monotonic() < last:
        time.sleep(0.1)
    assert not alive(cards)


def test_a_scheduler_that_is_not_there_is_an_error(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr(remote_target, "CONNECT_SECONDS", 0.5)
    with tls():
        assert main(["check", "--on", "tls://127.0.0.1:9"]) == 3
    assert "no scheduler answers at tls://127.0.0.1:9" in capsys.readouterr().err
