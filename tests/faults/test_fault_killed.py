"""kill -9 at the instants at which a verb writes: nothing is lost, nothing is left behind."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard
from msgspec import structs

import ssh_host
from answers import Patch
from cli.test_agents import INITIALIZE, ask
from git_repository import Repository, repository
from property_cases import examples
from remote.test_ssh import ended
from standin import StandIn, stand_in_for_jobs
from test_children import MARK, marked, until
from workbench import __main__, children
from workbench.cli.main import main
from workbench.errors import Interrupted
from workbench.run import machine, measurement, process, side_jobs
from workbench.run.measurement import Measurement
from workbench.run.protocol import TrialJob
from workspaces import CAUSAL, FIXTURE, GOOD, TUNED, executable, make, recorded_report

# Instants at which a verb changes a file or starts a process. Verbs run in a fork of the tests, and
# those of a server in a fork of its own.
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.symlink", "os.truncate")
STARTS = ("subprocess.Popen", "fcntl.flock", "shutil.move", "shutil.copyfile")
VICTIMS = ("waiting", "supervisor", "verb", "group")
LATER_SECONDS = 0.003  # after an instant, at most: the file is half written, or already is


def arm(counts: Path, instant: int, victim: str) -> None:
    """From now on count instants of the verb whose waiting process this is; ``instant`` 0 kills
    nobody. ``victim`` is one of VICTIMS or the id of a process.
    """
    waiting = os.getpid()
    with counts.open("r+b") as file:
        page = mmap.mmap(file.fileno(), 8)

    def hear(event: str, values: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = values
            if not flags & WRITES or str(path).startswith(("/dev/", "/proc/")):
                return
        elif event not in CHANGES and event not in STARTS:
            return
        if os.getpid() == waiting or os.getppid() == waiting:  # the supervisor's
            return
        number = int.from_bytes(page, "little") + 1
        page[:] = number.to_bytes(8, "little")
        if number == instant:
            kill()

    def kill() -> None:
        ids = {"waiting": waiting, "supervisor": os.getppid(), "verb": os.getpid()}
        if victim == "group":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(ids[victim] if victim in ids else int(victim), signal.SIGKILL)
        time.sleep(random.SystemRandom().uniform(0.0, LATER_SECONDS))

    sys.addaudithook(hear)


KILLS = examples(1, many=45)
SLOW_KILLS = examples(1, many=25)  # of what takes seconds


@dataclass
class Place:
    """A folder with a workspace, in which a verb runs and is killed."""

    top: Path
    stdin: str = os.devnull

    def __post_init__(self) -> None:
        self.root, self.scratch = self.top / "ws", self.top / "scratch"
        self.scratch.mkdir(parents=True)
        self.counts = self.top / "counts"
        self.mark = uuid.uuid4().hex

    def fork(
        self,
        words: list[str],
        instant: int = 0,
        victim: str = "verb",
        meanwhile: Callable[[int], object] = lambda child: None,
    ) -> int:
        """Run a verb in a fork of this process, in a session of its own; its exit code."""
        self.counts.write_bytes(bytes(8))
        children.page.has_answer = children.page.has_status = False
        children.page.folders = children.page.path = b""
        if (child := os.fork()) == 0:
            code = 99
            try:
                os.setsid()
                os.chdir(self.root)
                warnings.simplefilter("default")  # as of a command of its own
                log = os.open(self.top / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
                os.dup2(os.open(self.stdin, os.O_RDONLY), 0)
                for stream in (1, 2):
                    os.dup2(log, stream)
                sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
                os.environ |= {MARK: self.mark, "TMPDIR": str(self.scratch)}
                tempfile.tempdir = None
                sys.argv = ["workbench", *words]
                arm(self.counts, instant, victim)
                code = __main__.main()
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                with suppress(BaseException):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code & 0xFF)
        self.session = child
        meanwhile(child)
        status = os.waitpid(child, 0)[1]
        assert until(lambda: not self.left()), self.left()
        return os.waitstatus_to_exitcode(status)

    def left(self) -> set[int]:
        """Processes that are left of the verb: forks by their session, others by the mark."""
        found = marked(self.mark)
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError):
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) == self.session and stat[0] != "Z":
                    found.add(int(folder.name))
        return found

    @property
    def instants(self) -> int:
        return int.from_bytes(self.counts.read_bytes(), "little")

    def files(self) -> dict[str, bytes]:
        """Without the dates in names, and parts of files, which their next writer deletes."""
        return {
            re.sub(r"\d{8}T\d{6}Z", "DATE", str(path.relative_to(self.top))): path.read_bytes()
            for path in self.top.rglob("*")
            if path.is_file() and not path.name.endswith(".part") and ".git" not in path.parts
            and path.parent != self.top and "__pycache__" not in path.parts
        }  # fmt: skip


@dataclass
class Verb:
    words: tuple[str, ...]
    make: Callable[[Path], object]
    again: tuple[int, ...] = (0,)  # exit codes of the same command afterwards
    code: int = 0
    kills: int = KILLS
    is_whole: bool = False  # all that it writes is there, or nothing


def study(root: Path) -> Path:
    return make(root, {"baseline": GOOD}, {"fix": TUNED})


def commits(root: Path) -> Repository:
    made = repository(make(root, {"baseline": GOOD, "fix": GOOD}))
    made.edit("kernels/scale/fix.cu", "2", "3")
    return made


def tried(root: Path) -> None:
    study(root)
    (root / "twice.py").write_text("def f(x):\n    return x * 2\n")


def nothing(root: Path) -> None:
    root.mkdir()


TRANSPOSE = ("--study", "transpose", "--as", "transpose-h200", "--project", str(FIXTURE))
TRY = ("try", "twice.py:f", "--input", "x=randn(64)", "--keep", "twice")
VERBS = {
    "check": Verb(("check",), study),
    "ablate": Verb(("ablate",), study),
    "sweep": Verb(("sweep", "fix[warps=2|8]"), study),
    "new": Verb(("new", "fix2", "--from", "fix", "--change", "x"), study, (0, 2)),
    "ship": Verb(("ship", "chosen", *TRANSPOSE, "--to", "shipped"), nothing, (0, 2), is_whole=True),
    "gate": Verb(("gate", "HEAD~1"), commits, (1,), code=1),
    "try": Verb(TRY, tried, (0, 2), kills=SLOW_KILLS),
}


@pytest.fixture
def measured(monkeypatch: Patch, builds_here: None, trials_here: None) -> StandIn:
    """A stand-in for the GPU, and for the worker of ``ship``, which is run only once."""
    real: Any = vars(side_jobs)["run_worker"]
    ends: list[Any] = []

    def once(scratch: Path, job: Any, *given: Any) -> Any:
        if isinstance(job, TrialJob):
            return real(scratch, structs.replace(job, device="cpu"), *given)
        ends.append(ends[0] if ends else process.run_worker(scratch, job, *given))
        return ends[0]

    gpu = StandIn(monkeypatch, lambda run: {"baseline": 10.0, "fix": 8.0}.get(run.variant, 5.0))
    stand_in_for_jobs(monkeypatch)
    monkeypatch.setattr(side_jobs, "run_worker", once)
    return gpu


def instants(total: int, number: int) -> Iterator[int]:
    """Spread over all, one drawn of each part."""
    for part in range(number):
        first = total * part // number
        yield random.SystemRandom().randint(first + 1, max(first + 1, total * (part + 1) // number))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("ship", "gate", "try")))
        for name in VERBS
    ],
)
def test_a_verb_that_is_killed_as_it_writes(
    name: str, measured: StandIn, tmp_path: Path, monkeypatch: Patch
) -> None:
    verb = VERBS[name]
    if name == "ship":  # in this process, whose forks know its result
        assert main([*verb.words[:-1], str(tmp_path / "first")]) == 0
    whole = Place(tmp_path / "whole")
    verb.make(whole.root)
    code, total, expected = whole.fork([*verb.words]), whole.instants, set(whole.files())
    assert code == verb.code, (whole.top / "log").read_text()
    assert total > 3
    landed = 0
    # A run may come to fewer instants than the first, and end before it is killed.
    for number, instant in enumerate(instants(total, max(3, verb.kills))):
        if landed and number >= verb.kills:
            break
        place = Place(tmp_path / str(number))
        verb.make(place.root)
        before = place.files()
        monkeypatch.setattr(measured, "seconds", itertools.count())  # dates of its own
        killed = place.fork([*verb.words], instant, VICTIMS[number % len(VICTIMS)])
        landed += killed != code
        assert not list(place.scratch.glob("*workbench*"))
        if verb.is_whole:
            assert set(place.files()) in (set(), expected)
        monkeypatch.setattr(measured, "seconds", itertools.count(1000))
        again = place.fork([*verb.words])
        text = (place.top / "log").read_text()
        assert again in verb.again, text
        after = place.files()
        # The journal notes a timing at the latest when its file goes.
        assert set(after) >= {each for each in expected if not each.endswith("journal.jsonl")}
        assert not before.keys() - after.keys()
        kernels = [each for each in before if "/kernels/" in each]
        assert [after[each] for each in kernels] == [before[each] for each in kernels]
        if name == "gate":
            assert "\n" not in repository(place.root).git("worktree", "list")
        shutil.rmtree(place.top)
    print(f"{name}: {verb.kills} kills at {total} instants, {landed} before the end")
    assert landed


@pytest.mark.slow
def test_a_command_that_measures_over_ssh_is_killed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Patch
) -> None:
    """At instants at which it writes, and at any, over a real sshd."""
    standin, root = tmp_path_factory.mktemp("standin"), tmp_path_factory.mktemp("host")
    with ssh_host.running(root, ssh_host.standing_in(standin, root)) as host:
        host.use(monkeypatch)
        words = ["check", "--on", host.on]
        whole = Place(tmp_path / "whole")
        study(whole.root)
        began = time.monotonic()
        assert whole.fork(words) == 0, (whole.top / "log").read_text()
        seconds, total, expected = time.monotonic() - began, whole.instants, set(whole.files())
        landed = 0
        # A kill at a moment may come after the end of a run that is faster than the first.
        for number, instant in enumerate(instants(total, max(3, SLOW_KILLS)), start=1):
            if landed and number > SLOW_KILLS:
                break
            place = Place(tmp_path / str(number))
            study(place.root)
            before = place.files()
            if number % 2:
                victim = VICTIMS[number // 2 % len(VICTIMS)]
                landed += place.fork(words, instant, victim) != 0
            else:
                late = random.SystemRandom().uniform(0.0, seconds)

                def kill(child: int, late: float = late) -> None:
                    time.sleep(late)
                    os.kill(child, signal.SIGKILL)

                landed += place.fork(words, meanwhile=kill) != 0
            assert ended(host)
            assert not list(place.scratch.glob("*workbench*"))
            after = place.files()
            assert {name: after.get(name) for name in before} == before
            if number % 4 == 1:
                assert place.fork(words) == 0, (place.top / "log").read_text()
                assert set(place.files()) >= expected
            shutil.rmtree(place.top)
        print(f"over ssh: {SLOW_KILLS} kills, {total} instants, {landed} before the end")
        assert landed


INITIALIZED: dict[str, object] = {"method": "notifications/initialized"}


def test_a_server_is_killed_as_a_verb_of_its_writes(tmp_path: Path) -> None:
    given = {"name": "fix2", "parent": "fix", "change": "x"}
    new = {"id": 2, "method": "tools/call", "params": {"name": "new", "arguments": given}}

    def asked(place: Place, late: float | None = None) -> int:
        def new_step(child: int) -> None:
            with suppress(BrokenPipeError), Path(place.stdin).open("w") as stdin:
                killing = threading.Timer(late or 0, os.kill, (child, signal.SIGKILL))
                if late is not None:
                    killing.start()
                try:
                    ask(stdin, INITIALIZE, INITIALIZED, new)
                    until(lambda: '"id":2' in (place.top / "log").read_text() or is_gone(child))
                finally:
                    killing.cancel()

        return place.fork(["mcp"], meanwhile=new_step)

    def started(top: Path) -> Place:
        place = Place(top, str(top / "stdin"))
        study(place.root)
        os.mkfifo(place.stdin)
        return place

    whole, began = started(tmp_path / "whole"), time.monotonic()
    assert asked(whole) == 0, (whole.top / "log").read_text()
    seconds = time.monotonic() - began
    assert any("fix2" in name for name in whole.files())
    landed = 0
    # A kill may come when the server is about to end: the first call was the slowest.
    for number in range(max(12, SLOW_KILLS)):
        if landed and number >= SLOW_KILLS:
            break
        place = started(tmp_path / str(number))
        before = place.files()
        landed += asked(place, random.SystemRandom().uniform(0.3, 1.0) * seconds) != 0
        after = place.files()
        assert not before.keys() - after.keys()
        changed = {name for name in before if before[name] != after[name]}
        assert changed <= {"ws/ablations/scale/ablation.toml"}
        assert not list(place.scratch.glob("*workbench*"))
        place.stdin = os.devnull
        assert place.fork(["list"]) == 0, (place.top / "log").read_text()
        shutil.rmtree(place.top)
    print(f"mcp: {SLOW_KILLS} kills, {landed} before the end")
    assert landed


def is_gone(pid: int) -> bool:
    """Whether a child has ended; it is still to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


# It waits for its turn, writes half of a report, says that a variant was captured, and stays, deaf
# to SIGTERM, with a process in a session of its own.
NCU = """#!/bin/bash
trap '' INT TERM
while [ $# -gt 0 ]; do [ "$1" = --export ] && report=$2; shift; done
until [ -e turn.json ]; do sleep 0.02; done
echo '{"event":"hello","pid":'$$'}' >> events.jsonl
echo '{"event":"captured","variant":"fix"}' >> events.jsonl
head -c 100000 RECORDED > $report
setsid sleep 600 &
touch BEGAN
while :; do sleep 1; done
"""


def test_nothing_is_left_of_a_capture_that_ends_early(tmp_path: Path, monkeypatch: Patch) -> None:
    """By Ctrl-C on the shell."""
    ncu, began, recorded = (tmp_path / name for name in ("ncu", "began", "recorded"))
    packed = recorded_report(CAUSAL, "fix10").read_bytes()
    recorded.write_bytes(zstandard.ZstdDecompressor().decompress(packed))
    executable(ncu, NCU.replace("RECORDED", str(recorded)).replace("BEGAN", str(began)))
    capture = {name: getattr(Measurement, name) for name in ("start_capture", "capture")}
    gpu = StandIn(monkeypatch, lambda run: 10.0 if run.variant == "baseline" else 8.0)
    for name, method in capture.items():
        monkeypatch.setattr(Measurement, name, method)

    def worker(scratch: Path, job: Any, prefix: Any = None, cubins: Any = None) -> Any:
        return process.Worker(scratch, job, prefix, cubins) if prefix else gpu.start(scratch, job)

    monkeypatch.setattr(measurement, "Worker", worker)
    monkeypatch.setattr(machine, "find_ncu", lambda: str(ncu))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    place = Place(tmp_path / "place")
    study(place.root)

    def interrupt(child: int) -> None:
        assert until(began.exists), (place.top / "log").read_text()
        assert len(marked(place.mark)) >= 2
        os.killpg(child, signal.SIGINT)

    assert place.fork(["ablate", "fix"], meanwhile=interrupt) == Interrupted.exit_code
    assert not list(place.scratch.iterdir())
    assert not list(place.root.rglob("*.part"))
    names = " ".join(map(str, place.root.rglob("*")))
    assert not [word for word in ("ncu-rep", "captures.json") if word in names]
    assert re.search(r"/timings/\S+\.json", names), "what was measured before is kept"
    assert place.fork(["list"]) == 0, (place.top / "log").read_text()
