"""A block, what one worker does at a time, and what it answers: plain records, each by its hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from workbench.judge.deciding import Deciding
from workbench.run.cards import Card
from workbench.run.plan import Measured, Plan
from workbench.run.process import COMPILING_SECONDS
from workbench.run.protocol import Broken, CeilingsJob, Learned, TrialJob
from workbench.study.config import CommitGate, Config, Gates, Limits, Profiler, Timing
from workbench.words import Parameter


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure of a study at a shape, with all that decides about it.

    ``checked`` to ``everywhere`` as in a ``Plan``; ``derived`` as in a job.
    ``sources`` are the sha256 of the files by their path in a workspace. ``share`` tells apart the
    blocks that hold some sessions each of one comparison, in their order; -1 where it has all of
    them. ``command`` is what the user ran, in words. ``instead`` of measuring variants it may be a
    job of another kind.
    """

    study: str
    shape: str
    checked: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    proven: bool = False
    everywhere: bool = False
    derived: dict[str, dict[str, Parameter]] = {}
    sources: dict[str, str]
    timing: Timing
    limits: Limits
    profiler: Profiler
    gates: Gates
    gate: CommitGate
    deciding: Deciding = Deciding()
    share: int = -1
    command: tuple[str, ...] = ()
    instead: TrialJob | CeilingsJob | None = None

    @property
    def plan(self) -> Plan:
        return Plan(
            self.shape,
            checked=self.checked,
            timed=self.timed,
            captured=self.captured,
            proven=self.proven,
            everywhere=self.everywhere,
        )

    @property
    def config(self) -> Config:
        return Config(
            gates=self.gates,
            timing=self.timing,
            limits=self.limits,
            profiler=self.profiler,
            gate=self.gate,
        )

    @property
    def variants(self) -> list[str]:
        return self.plan.variants

    @property
    def words(self) -> str:
        """What it is, for whoever waits: ``b2h8s512d64: 6 timed, 4 captured``."""
        match self.instead:
            case CeilingsJob():
                return f"{len(self.instead.ceilings)} ceilings"
            case TrialJob():
                return f"{self.shape}: called once"
        counts = {"checked": self.checked, "timed": self.timed, "captured": self.captured}
        told = [f"{len(names)} {what}" for what, names in counts.items() if names]
        sessions = f" in session {self.share + 1}" if self.share >= 0 else ""
        return f"{self.shape}: {', '.join(told)}{sessions}"

    @property
    def silence(self) -> float:
        """Seconds without a word after which whoever works on it hangs. Each of its processes is
        stopped by its own limit before.
        """
        limits = (self.limits.seconds_per_step, self.limits.seconds_per_capture)
        return 2 * max(*limits, COMPILING_SECONDS)


def encode(block: Block) -> bytes:
    return msgspec.json.encode(block, order="deterministic")


def decode(data: bytes) -> Block:
    return msgspec.json.decode(data, type=Block)


def id_of(data: bytes) -> str:
    """Of an encoded block: what it is called everywhere."""
    return hashlib.sha256(data).hexdigest()[:20]


class _Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """``block`` is the id of the block that it answers, ``where`` the worker's address."""

    block: str
    where: str = ""


class Lacking(_Answer, frozen=True, kw_only=True):
    """The worker has no sources of these sha256: it needs the block again, with them."""

    sha256: tuple[str, ...]


class Failed(_Answer, frozen=True, kw_only=True):
    """Nothing came of it. ``again``: it is worth a try elsewhere. ``unequal``: the worker's card is
    not of the kind that was asked for.
    """

    kind: str
    message: str
    hint: str = ""
    again: bool = False
    unequal: bool = False


class Left(_Answer, frozen=True, kw_only=True):
    """The evidence folder that a block left, by path, with the sha256 of every file; what is not in
    files, as in ``Measured``; and how long it had which card.
    """

    gpu: str
    files: dict[str, bytes]
    sha256: dict[str, str]
    failures: dict[str, str] = {}
    hints: dict[str, str] = {}
    unsupported: dict[str, str] = {}
    refused: dict[str, str] = {}
    parts: dict[str, float] = {}
    told: Learned | Broken | None = None
    seconds: float = 0.0
    card: Card | None = None


Answer = Lacking | Failed | Left
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def encode_answer(answer: Answer) -> bytes:
    return msgspec.msgpack.encode(answer)


def decode_answer(data: bytes) -> Answer:
    """Raises ValueError for what is none."""
    return _answers.decode(data)


def left_by(block: str, gpu: str, root: Path, measured: Measured, seconds: float) -> Left:
    """What stands in an evidence folder now; tables of reports are read again where they go."""
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.parent.name != "tables"
    }
    return Left(
        block=block,
        gpu=gpu,
        files=files,
        sha256={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        failures=measured.failures,
        hints=measured.hints,
        unsupported=measured.unsupported,
        refused=measured.refused,
        parts=measured.seconds,
        told=measured.told,
        seconds=seconds,
    )


@dataclass
class Outcome:
    """What came of all blocks of a plan: as ``Measured``, with the GPU seconds by card."""

    measured: Measured = field(default_factory=Measured)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, left: Left) -> None:
        found = self.measured
        for mine, its in (
            (found.failures, left.failures),
            (found.hints, left.hints),
            (found.unsupported, left.unsupported),
            (found.refused, left.refused),
        ):
            mine.update(its)
        found.told = left.told or found.told
        for part, seconds in left.parts.items():
            found.seconds[part] = found.seconds.get(part, 0.0) + seconds


def with_sessions(timing: Timing, sessions: int) -> Timing:
    """Of a share: so many, and no further ones."""
    return replace(timing, sessions=sessions, max_sessions=sessions)
