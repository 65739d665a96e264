"""What carrying a block costs, and whether any is lost: ``python -m benchmarks.blocks``.

Two worker processes on this machine carry blocks out with a stand-in for the measuring while they
are killed at random. Every block must be in the merged evidence exactly once.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import blockwork

from workbench.evidence import journal, store
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Timing
from workbench.places import dispatch
from workbench.places.blocks import Block, Left
from workbench.places.dispatch import Dispatch
from workbench.places.local import cluster
from workbench.places.opening import connected
from workbench.places.plan import Errand
from workbench.places.underway import State, Watching
from workbench.places.workers import Crew
from workbench.run.gpu import Gpu
from workbench.run.plan import Plan
from workbench.study.config import Config
from workbench.study.shapes import with_derived
from workbench.study.workspace import find_workspace

ROOT = Path(__file__).resolve().parents[1]
SESSIONS, VARIANTS = 5, ("baseline", "fix1")
STUDY = '''"""Nothing."""

from workbench import Shape, Tolerance, Work

shapes = {"one": Shape(n=1)}
default_shape = "one"
tolerance = Tolerance(absolute=1e-6, relative=1e-6)


def inputs(shape, generator):
    return {}


def reference():
    return None


def work(shape):
    return Work(flops=1, bytes=1, dtype="float32")
'''


@dataclass(frozen=True)
class Found:
    """``overhead_ms`` is the whole time over the blocks, ``cpu_ms`` the processor time of the
    client with its scheduler. Its memory in MB is that when a fifth of the blocks were done, and at
    the end; ``load`` is the machine's average over a minute, before and after.
    """

    blocks: int
    workers: int
    seconds: float
    overhead_ms: float
    cpu_ms: float
    load: tuple[float, float]
    killed: int
    executed: int
    merged: int
    exactly_once: bool
    memory_early_mb: float
    memory_late_mb: float


def workspace(root: Path) -> Path:
    """A study with two variants that nobody runs."""
    kernels, ladder = root / "kernels" / "nothing", root / "ablations" / "nothing"
    kernels.mkdir(parents=True)
    ladder.mkdir(parents=True)
    (root / "workbench.toml").write_text('study = "nothing"\n')
    (kernels / "study.py").write_text(STUDY)
    steps = "schema_version = 1\n"
    for name in VARIANTS:
        (kernels / f"{name}.py").write_text("def run():\n    return None\n")
        parent = "" if name == VARIANTS[0] else f'parent = "{VARIANTS[0]}"\n'
        steps += f'\n[[step]]\nvariant = "{name}"\n{parent}key_change = "none"\n'
    (ladder / "ablation.toml").write_text(steps)
    return root


def errands(root: Path, folder: EvidenceFolder, number: int) -> list[Errand]:
    """A shape each, two variants in five sessions."""
    study = find_workspace(root).study()
    config = Config()
    config = replace(config, timing=replace(config.timing, sessions=SESSIONS))
    return [
        Errand(
            with_derived(study, {f"n{n}": {"n": n}}),
            config,
            folder,
            Plan(f"n{n}", timed=VARIANTS, proven=True),
        )
        for n in range(2, number + 2)
    ]


def resident_mb() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


@contextmanager
def crew(number: int, folder: Path, ran: Path) -> Iterator[Crew]:
    """Workers that write to ``folder`` alone, and a line to ``ran`` for every block."""
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    given = {
        "WORKBENCH_PLACE": str(folder),
        "PYTHONPATH": os.pathsep.join(paths),  # the workers import what stands in
        blockwork.RAN: str(ran),
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        with cluster(number) as opened, connected("bench", opened) as found:
            yield Crew("bench", found, blockwork.CARD.kind, Gpu("none", "", "0.0"))
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Killer:
    """Kills a worker process at random so many times, evenly over the blocks."""

    def __init__(self, crew: Crew, number: int, kills: int) -> None:
        self.crew, self.draw = crew, random.Random(1)
        self.at = {number * (i + 1) // (kills + 1) for i in range(kills)}
        self.killed: list[int] = []

    def look(self, done: int) -> None:
        if done in self.at:
            threading.Thread(target=self.kill, daemon=True).start()

    def kill(self) -> None:
        with suppress(Exception):  # it may be starting
            pids = list(self.crew.client.run(os.getpid, on_error="ignore").values())
            pid = self.draw.choice(pids)
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)


def measure(number: int, *, kills: int, workers: int = 2) -> Found:
    with tempfile.TemporaryDirectory(prefix="workbench-blocks-") as scratch:
        top = Path(scratch)
        root, ran = workspace(top / "workspace"), top / "ran"
        folder = EvidenceFolder(root / "ablations" / "nothing" / "evidence" / "none")
        memory: dict[int, float] = {}
        with crew(workers, top / "own", ran) as found:
            killer = Killer(found, number, kills)

            def done(state: State, block: Block, left: Left) -> None:
                assert not left.failures, left.failures
                killer.look(state.done)
                if state.done in (number // 5, number):
                    memory[state.done] = resident_mb()

            asked = errands(root, folder, number)
            carrying = Dispatch(found, asked, ["blocks"], Watching(done=done), blockwork.task)
            began, used, load = time.monotonic(), time.process_time(), os.getloadavg()[0]
            carrying.run()
            seconds, used = time.monotonic() - began, time.process_time() - used
        executed = ran.read_text().splitlines()
        merged, once = merged_once(folder, number)
        return Found(
            blocks=number,
            workers=workers,
            seconds=round(seconds, 1),
            overhead_ms=round(1e3 * seconds / number, 2),
            cpu_ms=round(1e3 * used / number, 2),
            load=(round(load, 1), round(os.getloadavg()[0], 1)),
            killed=len(killer.killed),
            executed=len(executed),
            merged=merged,
            exactly_once=once,
            memory_early_mb=round(memory[number // 5], 1),
            memory_late_mb=round(memory[number], 1),
        )


def merged_once(folder: EvidenceFolder, number: int) -> tuple[int, bool]:
    """How many shapes have their timing, and whether each has one, with all its sessions, and one
    line in the journal.
    """
    entries = collections.Counter(e.shape for e in journal.load_journal(folder).sessions)
    good = 0
    for n in range(2, number + 2):
        files = folder.timing_files(f"n{n}")
        timings = [store.read(path, Timing) for path in files]
        good += [len(t.sessions) for t in timings] == [SESSIONS] and entries[f"n{n}"] == 1
    return good, good == number and sum(entries.values()) == number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--alone", action="store_true", help="a task each, as long ones are")
    given = parser.parse_args()
    if given.alone:
        dispatch.TOGETHER = 1
    found = measure(given.blocks, kills=given.kills)
    print(json.dumps(asdict(found), indent=1))
    return 0 if found.exactly_once else 1


if __name__ == "__main__":
    sys.exit(main())
