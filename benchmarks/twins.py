"""How far a chained time can be believed on this GPU: ``python -m benchmarks.twins FOLDER``.

Sessions (processes) of many instances: twins, which are the same kernel and must come out as
equal, and copies with a planted slowdown. Writes ``samples.npz`` and ``sessions.json`` into FOLDER
and prints the tables of docs/measuring.md. Needs an NVIDIA GPU; takes four minutes as it comes.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import random
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from benchmarks.chained import (
    BACK_TO_BACK,
    BARE,
    CHAINED,
    Card,
    Case,
    Instance,
    Surroundings,
)
from benchmarks.report import Recording, tables

from workbench import cuda
from workbench.run.worker.timing.card import Array, switch_contexts
from workbench.study.workspace import load_module

FOLDER = Path(__file__).resolve().parents[1] / "kernels" / "attention"
SHORT, LONG = "b2h8s512d64", "b4h16s2048d64"
KERNELS = {SHORT: ("sdpa", "fix7", "fix11"), LONG: ("sdpa", "fix7", "fix14")}
CALLS = {SHORT: 12, LONG: 2}  # of a graph
WARM_SECONDS = {SHORT: 0.1, LONG: 0.5}
EARLY = Case("fix11", {"early": 1})
TWINS, PLANTED, PILOT = 48, 12, 4  # instances in a session
SLOWDOWNS = (0.01, 0.03)
ROUNDS, ROUNDS_BEFORE = 6, 2  # counted; and before the card has switched contexts
STEADY_SECONDS = 1.5
REGIMES = (CHAINED, BARE, BACK_TO_BACK)
SAMPLES, SESSIONS = "samples.npz", "sessions.json"
SAMPLE = np.dtype(
    [
        ("session", "u2"),
        ("shape", "u1"),
        ("case", "u1"),
        ("instance", "u2"),
        ("regime", "u1"),
        ("round", "i2"),
        ("calls", "u1"),
        ("nanoseconds", "f4"),
        ("cycles", "f4"),
    ]
)


@dataclass(frozen=True)
class Part:
    """Of a session: instances of these cases at a shape, and how often all are timed."""

    shape: str
    cases: tuple[Case, ...]
    counts: tuple[int, ...]
    rounds: int


@dataclass(frozen=True)
class Job:
    session: int
    parts: tuple[Part, ...]
    steady: bool = False  # instead: every case by itself, until the card is in its steady state


def pilot() -> Job:
    parts = [
        Part(shape, tuple(Case(name, {}) for name in names), (PILOT,) * len(names), ROUNDS)
        for shape, names in KERNELS.items()
    ]
    return Job(session=0, parts=tuple(parts))


def cases_of(shape: str, cycles: dict[tuple[str, str], float]) -> list[tuple[Case, int]]:
    """Twins and planted slowdowns, the latter in cycles of what the pilot took for a call."""
    found = []
    for name in KERNELS[shape]:
        found.append((Case(name, {}), TWINS))
        for slowdown in SLOWDOWNS:
            planted = round(slowdown * cycles[shape, name])
            found.append((Case(name, {}, planted), PLANTED))
    if shape == SHORT:
        found.append((EARLY, PLANTED))
    return found


class Session:
    """One process: its instances of all cases, timed in rounds."""

    def __init__(self, job: Job, study: ModuleType) -> None:
        self.job, self.study = job, study
        self.card = Card()
        self.marks: dict[str, float] = {}

    def instances(self, part: Part) -> list[tuple[int, int, Instance]]:
        around = Surroundings(self.card, self.study, part.shape)
        wanted = [(at, n) for at, count in enumerate(part.counts) for n in range(count)]
        random.shuffle(wanted)
        made = []
        for at, number in wanted:
            more = number % (TWINS // PILOT) == 0 and not part.cases[at].planted
            regimes = REGIMES if more else REGIMES[:2]
            case = part.cases[at]
            made.append(
                (at, number, Instance(around, FOLDER, case, CALLS[part.shape], regimes)),
            )
        torch.cuda.synchronize()
        return made

    def measure(self, part: Part) -> Array:
        began = time.monotonic()
        made = self.instances(part)
        built = time.monotonic()
        rounds = Rounds(self.card, made)
        for number in range(-ROUNDS_BEFORE, 0):
            rounds.run(number)
        rounds.finish()
        switch_contexts()
        warm = time.monotonic() + WARM_SECONDS[part.shape]
        while time.monotonic() < warm:
            rounds.run(-100)
        for number in range(part.rounds):
            rounds.run(number)
        rounds.finish()
        self.marks[f"{part.shape} instances"] = built - began
        self.marks[f"{part.shape} rounds"] = time.monotonic() - built
        samples = np.concatenate(rounds.samples)
        samples["session"] = self.job.session
        samples["shape"] = list(KERNELS).index(part.shape)
        return samples

    def steady(self, part: Part) -> Array:
        """Every case alone, in blocks of STEADY_SECONDS: samples of the last third, chained."""
        made = self.instances(part)
        switch_contexts()
        blocks = []
        for block in range(2 * len(made)):
            rounds = Rounds(self.card, [made[block % len(made)]], regimes=(CHAINED,), repeat=64)
            end = time.monotonic() + STEADY_SECONDS
            while (left := end - time.monotonic()) > 0:
                rounds.run(block if left < STEADY_SECONDS / 3 else -1)
            rounds.finish()
            blocks += rounds.samples
        samples = np.concatenate(blocks)
        samples["shape"] = list(KERNELS).index(part.shape)
        return samples


class Rounds:
    """Every graph of every instance once a round, in a new random order.

    The next round is queued before the stamps of the last are read: the card never waits.
    """

    def __init__(
        self,
        card: Card,
        made: list[tuple[int, int, Instance]],
        regimes: tuple[str, ...] = REGIMES,
        repeat: int = 1,
    ) -> None:
        self.card = card
        self.order = made * repeat
        self.regimes = regimes
        self.samples: list[Array] = []
        count = sum(len(one.graphs.keys() & set(regimes)) for _, _, one in self.order)
        self.pinned = [card.pinned(count) for _ in range(2)]
        self.queued: list[tuple[Array, torch.Tensor, torch.cuda.Event]] = []
        self.turn = 0

    def run(self, number: int) -> None:
        random.shuffle(self.order)
        rows = []
        for case, instance, one in self.order:
            regimes = [regime for regime in one.graphs if regime in self.regimes]
            for regime in random.sample(regimes, len(regimes)):
                self.card.replay(one.graphs[regime])
                at = REGIMES.index(regime)
                rows.append((0, 0, case, instance, at, number, one.calls, 0.0, 0.0))
        pinned = self.pinned[self.turn % 2]
        self.turn += 1
        self.card.fetch(pinned)
        done = torch.cuda.Event()
        done.record()
        self.queued.append((np.array(rows, SAMPLE), pinned, done))
        if len(self.queued) == 2:
            self.read()

    def read(self) -> None:
        rows, pinned, done = self.queued.pop(0)
        done.synchronize()
        times = self.card.times(pinned)
        rows["nanoseconds"], rows["cycles"] = times.nanoseconds, times.cycles
        self.samples.append(rows)

    def finish(self) -> None:
        while self.queued:
            self.read()


def child(job: Job, forked: float, pipe: Connection) -> None:
    """In a fork of a process that has imported everything and never touched the GPU."""
    try:
        gc.disable()
        random.seed()
        torch.zeros(1, device="cuda")
        session = Session(job, load_module(FOLDER / "study.py", "benchmark_study"))
        session.marks["start"] = time.monotonic() - forked
        measure = session.steady if job.steady else session.measure
        samples = np.concatenate([measure(part) for part in job.parts])
        pipe.send((samples, session.marks, str(torch.cuda.get_device_properties(0).uuid)))
    except BaseException:
        traceback.print_exc()
        pipe.send(None)
    os._exit(0)


def run(job: Job) -> tuple[Array, dict[str, float], str]:
    ours, theirs = multiprocessing.Pipe()
    began = time.monotonic()
    process = multiprocessing.get_context("fork").Process(target=child, args=(job, began, theirs))
    process.start()
    theirs.close()
    try:
        came = ours.recv() if ours.poll(120) else None
    except EOFError:
        came = None
    process.join(10)
    if came is None:
        process.kill()
        raise SystemExit(f"session {job.session} failed")
    samples, marks, uuid = came
    return samples, {**marks, "whole": time.monotonic() - began}, uuid


def cycles_of(samples: Array) -> dict[tuple[str, str], float]:
    """Of a call, by shape and kernel: chained less bare."""
    found = {}
    for at, (shape, names) in enumerate(KERNELS.items()):
        for case, name in enumerate(names):
            mine = samples[
                (samples["shape"] == at) & (samples["case"] == case) & (samples["round"] >= 0)
            ]
            each = mine["cycles"] / mine["calls"]
            parts = [np.median(each[mine["regime"] == regime]) for regime in (0, 1)]
            found[shape, name] = float(parts[0] - parts[1])
    return found


def record(sessions: int, seconds: float) -> Recording:
    """The pilot, the sessions, and the large kernels in their own steady state."""
    end = time.monotonic() + seconds
    first, _, uuid = run(pilot())
    cycles = cycles_of(first)
    by_shape = {shape: cases_of(shape, cycles) for shape in KERNELS}
    parts = tuple(
        Part(shape, tuple(c for c, _ in cases), tuple(n for _, n in cases), ROUNDS)
        for shape, cases in by_shape.items()
    )
    job = Job(session=0, parts=parts)
    samples: list[Array] = []
    marks: list[dict[str, float]] = []
    for session in range(sessions):
        if marks and time.monotonic() + marks[-1]["whole"] > end:
            break
        found, mark, _ = run(replace(job, session=session))
        samples.append(found)
        marks.append(mark)
    steady, _, _ = run(Job(session=0, parts=(pilot_of(LONG),), steady=True))
    return Recording(
        gpu=uuid,
        shapes=tuple(KERNELS),
        cases=tuple(tuple(case for case, _ in cases) for cases in by_shape.values()),
        samples=np.concatenate(samples),
        marks=tuple(marks),
        steady=steady,
    )


def pilot_of(shape: str) -> Part:
    names = KERNELS[shape]
    return Part(shape, tuple(Case(name, {}) for name in names), (1,) * len(names), 0)


def save(recording: Recording, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / SAMPLES, samples=recording.samples, steady=recording.steady)
    about = {
        "gpu": recording.gpu,
        "marks": recording.marks,
        "cases": [[[c.variant, dict(c.parameters), c.planted] for c in s] for s in recording.cases],
    }
    (folder / SESSIONS).write_text(json.dumps(about), encoding="utf-8")


def recorded(folder: Path) -> Recording:
    arrays = np.load(folder / SAMPLES)
    about = json.loads((folder / SESSIONS).read_text(encoding="utf-8"))
    return Recording(
        gpu=about["gpu"],
        shapes=tuple(KERNELS),
        cases=tuple(tuple(Case(*case) for case in cases) for cases in about["cases"]),
        samples=arrays["samples"],
        marks=tuple(about["marks"]),
        steady=arrays["steady"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help=f"for {SAMPLES} and {SESSIONS}")
    parser.add_argument("--recorded", action="store_true", help="print the tables of FOLDER again")
    parser.add_argument("--sessions", type=int, default=30, help="at least 10")
    parser.add_argument("--seconds", type=float, default=240, help="no session is begun after")
    given = parser.parse_args()
    if given.recorded:
        print(tables(recorded(given.folder)))
        return 0
    if given.sessions < 10:
        parser.error("two runs of five sessions are the least that can be compared")
    with tempfile.TemporaryDirectory() as cubins:
        os.environ[cuda.CUBIN_FOLDER] = cubins
        recording = record(given.sessions, given.seconds)
    save(recording, given.folder)
    print(tables(recording))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
