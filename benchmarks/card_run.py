"""Runs steps on a copy of this repository, and packs after each what they changed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.card_steps import (
    ROOT,
    Machine,
    Step,
    Unusable,
    drawn_by,
    last_step,
    own_packages,
)
from benchmarks.card_tree import Tree
from benchmarks.card_wheels import Site

PACK = "changed.tar.gz"
PRIVATE = ("/home/", "/root/", "/Users/")  # which no evidence may hold
GRACE = 35.0  # seconds after Ctrl-C to keep what it has; steps before it are packed already
PACKING = 10.0  # seconds that are kept for it
TAIL = 8  # lines of a step's log that are shown at its end
DONE, FAILED, STOPPED, LEFT_OUT = "done", "failed", "stopped", "left out"
INTERRUPTED, INTERRUPTED_CODE = "interrupted", 130


@dataclass(frozen=True)
class Ended:
    """How a step ended, and why where it is not done."""

    step: str
    how: str
    seconds: float
    why: str = ""


def table(ended: Sequence[Ended]) -> str:
    rows = ["| step | ended | seconds |", "| --- | --- | ---: |"]
    for one in ended:
        why = f": {one.why}" if one.why else ""
        rows.append(f"| {one.step} | {one.how}{why} | {one.seconds:.0f} |")
    return "\n".join(rows) + "\n"


def code_of(ended: Sequence[Ended]) -> int:
    """The exit code."""
    ways = {one.how for one in ended}
    return 1 if ways & {FAILED, STOPPED} else 3 if LEFT_OUT in ways else 0


def fill(page: Path, mark: str, text: str) -> None:
    """Below ``<!-- MARK -->``, in place of what was put there before. Raises Unusable."""
    old = page.read_text(encoding="utf-8")
    marked = re.compile(rf"<!-- {mark} -->\n(?:.*?<!-- /{mark} -->\n)?", re.DOTALL)
    new = f"<!-- {mark} -->\n{text.strip()}\n<!-- /{mark} -->\n"
    if marked.search(old) is None:
        raise Unusable(f"{page.name} has no mark {mark}")
    page.write_text(marked.sub(lambda match: new, old, count=1), encoding="utf-8")


@dataclass
class Told:
    """What ``out`` tells of all steps: ``log.txt`` and ``table.md``, behind what stood there."""

    out: Path
    ended: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = self.out / "table.md"
        self.before = f"{path.read_text(encoding='utf-8')}\n" if path.is_file() else ""
        self.turn = threading.Lock()

    def end(self, ended: Ended) -> None:
        with self.turn:
            self.ended.append(ended)
            (self.out / "table.md").write_text(self.before + table(self.ended), encoding="utf-8")

    def log(self, part: Path) -> None:
        """What a step of a lane has printed."""
        with self.turn, (self.out / "log.txt").open("ab") as log:
            log.write(part.read_bytes())


@dataclass
class Run:
    """Steps on a copy of the repository; ``last`` is the moment by which all must be over.

    A ``lane`` is one of several runs at once, each with the card of its number to itself.
    """

    out: Path
    scratch: Path
    last: float = float("inf")
    source: Path = ROOT
    grace: float = GRACE
    lane: int | None = None
    shared: Told | None = None  # with other lanes

    def __post_init__(self) -> None:
        self.told = self.shared or Told(self.out)
        self.own = self.scratch if self.lane is None else self.scratch / f"lane-{self.lane}"
        self.tree = Tree(self.own / "tree", self.own / "copied.json")
        self.site = Site(self.scratch / "site", self.scratch / "wheels", self.own / "cache")
        self.log = self.out / "log.txt" if self.lane is None else self.own / "log.txt"
        self.pack = self.out / (PACK if self.lane is None else f"lane-{self.lane}.{PACK}")
        self.running: subprocess.Popen[bytes] | None = None
        self.interrupted = False

    @property
    def ended(self) -> list[Ended]:
        return self.told.ended

    def prepare(self, wheels: Sequence[Path]) -> None:
        """The copy and the packages. Raises Unusable for a folder that is somebody else's."""
        where = self.own.resolve()
        if where.is_relative_to(self.source) or where.as_posix().startswith(PRIVATE):
            raise Unusable(
                f"{where} is somebody's own path, which captures would hold: say another"
            )
        if not self.tree.copied.is_file() and self.own.exists() and any(self.own.iterdir()):
            raise Unusable(f"{self.own} is no folder of this program's: say another --scratch")
        if not self.tree.copied.is_file() and any(self.out.glob(f"{self.pack.name}*")):
            raise Unusable(
                f"{self.out} has results of another copy: take them, or say another --out"
            )
        self.out.mkdir(parents=True, exist_ok=True)
        for name in self.tree.refresh(self.source):
            say(f"{name}: changed here and by an earlier step, whose form stays")
        for name in self.site.install(wheels):
            say(f"{name}: not whole yet, other pieces have to come")

    def run(self, steps: Sequence[Step]) -> int:
        """The exit code."""
        for step in steps:
            if self.one(step).why == INTERRUPTED:
                return INTERRUPTED_CODE
        return code_of(self.ended)

    def one(self, step: Step) -> Ended:
        """Where the machine has what it needs, and there is time."""
        lacks = Machine(self.site.packages).lacks(step, own_packages(self.tree.root))
        if self.lane is not None and step.cards > 1:
            lacks.append("a run of its own, without lanes")
        left = self.last - time.monotonic() - self.grace - PACKING
        if lacks:
            ended = Ended(step.name, LEFT_OUT, 0, f"lacks {', '.join(lacks)}")
        elif left < step.expected:
            why = f"takes {step.expected} s, and {max(0, left):.0f} are left"
            ended = Ended(step.name, LEFT_OUT, 0, why)
        else:
            say(f"{step.name}: {step.what}; {step.expected} s, at most {step.limit}")
            ended = self.step(step, min(step.limit, left))
        self.end(ended)
        return ended

    def end(self, ended: Ended) -> None:
        """Note it, and pack what there is."""
        why = f": {ended.why}" if ended.why else ""
        say(f"{ended.step}: {ended.how}{why} ({ended.seconds:.0f} s)")
        if self.lane is not None and self.log.is_file():
            self.told.log(self.log)
            self.log.unlink()
        self.told.end(ended)
        self.tree.pack(self.pack)

    def step(self, step: Step, limit: float) -> Ended:
        began = time.monotonic()
        how, why = DONE, ""
        try:
            folders = self.folders(step)
            for number in range(len(step.commands)):
                arguments = step.arguments(folders | self.last_steps(step))[number]
                left = began + limit - time.monotonic()
                code, printed = self.command(arguments, left, apart=bool(step.into))
                if code != 0 or self.interrupted:
                    how = STOPPED if code is None else FAILED
                    why = f"over {limit:.0f} s" if code is None else f"exit {code}"
                    break
            else:
                if step.into:
                    page, mark = step.into.split()
                    text = f"`{step.commands[-1]}`, {datetime.now(UTC):%Y-%m-%d}:\n\n{printed}"
                    fill(self.tree.root / page, mark, text)
        except Unusable as error:
            how, why = FAILED, str(error)
        except KeyboardInterrupt:
            self.interrupted = True
        if self.interrupted:
            how, why = STOPPED, INTERRUPTED
        return Ended(step.name, how, time.monotonic() - began, why)

    def folders(self, step: Step) -> dict[str, str]:
        """For ``<fresh>`` in its commands."""
        names = [word for word in drawn_by([step]) if ":" not in word]
        return {word: tempfile.mkdtemp(prefix=f"{step.name}-", dir=self.own) for word in names}

    def last_steps(self, step: Step) -> dict[str, str]:
        """For ``<last:STUDY>``: as the commands before have left the ladder."""
        names = [word for word in drawn_by([step]) if ":" in word]
        return {word: last_step(self.tree.root, word.strip("<>").split(":")[1]) for word in names}

    def command(
        self, arguments: Sequence[str], limit: float, *, apart: bool
    ) -> tuple[int | None, str]:
        """Its exit code, None where it was stopped, and with ``apart`` what it printed on stdout,
        which otherwise goes to the log alone, as it comes.
        """
        with self.log.open("ab") as log, tempfile.TemporaryFile() as stdout:
            shown = shlex.join(["python", *arguments[1:]])
            lane = "" if self.lane is None else f"lane {self.lane}: "
            log.write(f"\n==== {datetime.now(UTC):%H:%M:%S} {lane}{shown}\n".encode())
            log.flush()
            begins = log.tell()
            started = subprocess.Popen(
                arguments,
                cwd=self.tree.root,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=stdout if apart else log,
                stderr=log,
                start_new_session=True,
            )
            self.running = started
            try:
                code = waited(started, limit, self.grace)
            finally:
                self.running = None
                stdout.seek(0)
                printed = stdout.read()
                log.write(printed)
        said = self.log.read_bytes()[begins:].decode(errors="replace").strip().splitlines()
        print("".join(f"    {line}\n" for line in said[-TAIL:]), end="", flush=True)
        return code, printed.decode(errors="replace")

    def environment(self) -> dict[str, str]:
        """For the commands of a step."""
        found = self.site.environment(self.tree.root, self.source)
        if self.lane is not None:
            folder = self.own / "tmp"  # with the lock of ncu, which is one for each card then
            folder.mkdir(parents=True, exist_ok=True)
            found |= {"CUDA_VISIBLE_DEVICES": str(self.lane), "TMPDIR": str(folder)}
            found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as nvidia-smi counts them
        return found


def waited(started: subprocess.Popen[bytes], limit: float, grace: float) -> int | None:
    """The exit code; None where it took longer than ``limit`` seconds and was interrupted, which
    leaves it ``grace`` to keep what it has. Nothing of its group is left. After Ctrl-C here it is
    interrupted as well.
    """
    try:
        return started.wait(max(0.0, limit))
    except subprocess.TimeoutExpired:
        interrupt(started, grace)
        return None
    except KeyboardInterrupt:
        interrupt(started, grace)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def interrupt(started: subprocess.Popen[bytes], grace: float) -> None:
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        started.wait(grace)


def say(text: str) -> None:
    print(f"[{datetime.now(UTC):%H:%M:%S}] {text}", flush=True)
