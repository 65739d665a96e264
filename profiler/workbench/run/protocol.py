"""Define what a worker is asked to do, and what it tells while it does it.

The parent writes one job to ``job.json`` in the worker's folder. The worker appends one event a
line to ``events.jsonl`` and keeps the name of whoever has the GPU in ``current``. A worker that
waits looks for ``turn.json``, which says which of its variants are still wanted. ``waiting`` is
there while the process that compares waits for a variant's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from workbench.errors import (
    CannotTell,
    EnvironmentLacks,
    GateFailed,
    ToolFailed,
    UsageError,
    WorkbenchError,
)
from workbench.evidence.records import (
    BuiltKernel,
    Call,
    CheckOutcome,
    Environment,
    Session,
    Witness,
)
from workbench.run.machine import Gpu
from workbench.words import Parameter, Phase

JOB = "job.json"
EVENTS = "events.jsonl"
CURRENT = "current"
TURN = "turn.json"
WAITING = "waiting"
CALLS = "calls.json"
LOG = "log"
PARENT = "WORKBENCH_PARENT"  # in a worker's environment: the process that reads its events


class _Job(msgspec.Struct, frozen=True, kw_only=True, tag_field="job"):
    study: str

    @property
    def forks(self) -> bool:
        """Whether the worker forks a process for each variant or session."""
        return True


class VariantsJob(_Job, frozen=True, kw_only=True, tag="variants"):
    """The ``phases`` of a study's ``variants`` at ``shape``, in the order of ``Phase``;
    ``references`` are those of the study, measured here or not.

    Variants are built for ``arch``, for the GPU at hand where it is empty, with the ``params``
    that are not their own, checked at ``check_shapes``, where the error of ``reference`` stands
    beside theirs, and captured inside the NVTX ``ranges``. ``sources`` are the files that their
    fingerprints cover, ``derived`` the parameters of shapes that ``study.py`` does not list.
    Those that are ``known`` are not checked. ``on_cpu``: they are only checked, without a GPU.
    """

    variants: tuple[str, ...]
    params: dict[str, dict[str, Parameter]]
    phases: tuple[Phase, ...]
    arch: str = ""
    shape: str = ""
    check_shapes: tuple[str, ...] = ()
    reference: str = ""
    references: tuple[str, ...] = ()
    sources: dict[str, tuple[str, ...]] = {}
    ranges: dict[str, str] = {}
    waits: bool = False
    derived: dict[str, dict[str, Parameter]] = {}
    known: tuple[str, ...] = ()
    on_cpu: bool = False

    @property
    def only_compiles(self) -> bool:
        """Whether it calls nothing, and needs neither torch nor a GPU."""
        return self.phases == (Phase.BUILD,) and bool(self.arch)

    @property
    def forks(self) -> bool:
        """ncu would follow every one of them, and what is only compiled is not called."""
        return not (self.only_compiles or {Phase.CAPTURE, Phase.TRACE} & {*self.phases})


class SessionsJob(_Job, frozen=True, kw_only=True, tag="sessions"):
    """Variants timed together at a shape, in ``sessions`` processes of ``instances`` each, on the
    first of the ``gpus`` that they may use.

    First a ``referee`` times the steps, but those whose time ``by_referee`` is known, and the
    ``references`` are timed alone, if ``references_alone``. ``controls`` have two groups of
    instances. At the power limit ``kernels_alone`` are timed alone besides; empty: those that a
    session finds the fastest. Its turn says which variants, and after these sessions which of them
    once more, in as many again; none is the end. ``derived`` as in ``VariantsJob``.
    """

    shape: str
    params: dict[str, dict[str, Parameter]]
    sources: dict[str, tuple[str, ...]]
    references: tuple[str, ...]
    references_alone: bool = True
    referee: bool = True
    by_referee: dict[str, float] = {}
    controls: tuple[str, ...]
    sessions: int
    instances: int
    rounds: int
    graph_microseconds: float
    derived: dict[str, dict[str, Parameter]] = {}
    gpus: tuple[Gpu, ...] = ()
    kernels_alone: tuple[str, ...] = ()


class TrialJob(_Job, frozen=True, kw_only=True, tag="trial"):
    """The ``baseline`` and ``references`` of a study, called once at its ``shapes``: see
    ``worker.trial_worker``. ``device`` is ``cuda`` or ``cpu``; ``called`` is how its user knows the
    baseline. ``ranges``: the references may do other work than the baseline.
    """

    shapes: tuple[str, ...]
    baseline: str
    called: str
    references: tuple[str, ...]
    device: str
    ranges: bool = False

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"


class ShipJob(_Job, frozen=True, kw_only=True, tag="ship"):
    """The contents of a package of a ``variant``: see ``worker.shipping``.

    ``modules`` are names and parameters by role: "study", "variant" and, where one answers for it
    in place of the study's own function, "reference". The inputs are drawn at the shapes for which
    the variant was ``checked`` as correct. With ``has_kernels`` it declares some of
    ``cuda.kernel``.
    """

    variant: str
    modules: dict[str, tuple[str, dict[str, Parameter]]]
    checked: tuple[str, ...]
    has_kernels: bool

    @property
    def forks(self) -> bool:
        return False


Job = VariantsJob | SessionsJob | TrialJob | ShipJob

KINDS = {
    kind.__name__: kind
    for kind in (CannotTell, EnvironmentLacks, GateFailed, ToolFailed, UsageError)
}


class ErrorText(msgspec.Struct, frozen=True, kw_only=True):
    """An exception in words; ``kind`` is the name of its class."""

    kind: str
    message: str
    hint: str = ""

    @classmethod
    def of(cls, error: WorkbenchError) -> ErrorText:
        return cls(kind=type(error).__name__, message=error.message, hint=error.hint)

    def error(self, default: type[WorkbenchError] = ToolFailed) -> WorkbenchError:
        """Return the other process's error; ``default`` stands for classes that are only there."""
        return KINDS.get(self.kind, default)(self.message, hint=self.hint)


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Hello(_Event, frozen=True, kw_only=True, tag="hello"):
    """The first event: the worker's own process, which may run inside of ncu's. Another one is of
    the process that compares.
    """

    pid: int


class DeviceFound(_Event, frozen=True, kw_only=True, tag="environment"):
    environment: Environment


class Start(_Event, frozen=True, kw_only=True, tag="start"):
    """``compiling``: what comes first is a call at which a front end may compile."""

    variant: str
    phase: Phase
    compiling: bool = False


class Built(_Event, frozen=True, kw_only=True, tag="built"):
    """``defines`` are the macros of each of the kernels, as ``-D`` would have them."""

    variant: str
    arch: str
    kernels: tuple[BuiltKernel, ...]
    defines: tuple[str, ...] = ()
    warnings: tuple[str, ...]


class Checked(CheckOutcome, frozen=True, kw_only=True, tag_field="event", tag="checked"):
    variant: str
    shape: str


class Round(_Event, frozen=True, kw_only=True, tag="round"):
    """The GPU is at a round of a session; numbers count from 0, and below it warms up.

    ``variant`` is at work where a round takes so long that it is reported more than once, and
    with ``kernel_alone``, after the rounds.
    """

    session: int
    alone: bool
    number: int
    rounds: int
    variant: str = ""
    kernel_alone: bool = False


class TimedSession(_Event, frozen=True, kw_only=True, tag="timed"):
    """One session; see ``records.Timing``."""

    session: Session
    nodes: dict[str, Call]
    ways: dict[str, tuple[Call, ...]] = {}
    copies: int = 1


class Witnessed(_Event, frozen=True, kw_only=True, tag="witnessed"):
    witness: Witness


class SessionsDone(_Event, frozen=True, kw_only=True, tag="sessions_done"):
    """The sessions that were asked for are over; the worker waits for its turn."""

    sessions: int


class Captured(_Event, frozen=True, kw_only=True, tag="captured"):
    variant: str


class Failed(_Event, frozen=True, kw_only=True, tag="failed"):
    """A variant is out; the others go on."""

    variant: str
    phase: Phase
    error: ErrorText


class Learned(_Event, frozen=True, kw_only=True, tag="learned"):
    """The result of a trial. ``inputs`` and ``outputs`` are in words, at the first shape.

    ``destinations`` are inputs that are only written into, ``in_place`` those that are changed.
    ``exact``: the reference takes doubles; else ``refusal`` says why not, and ``rounds`` to which
    type it rounds its result, if that is why. ``dtype`` is the inputs'.
    ``bytes`` are those of a call by shape, as it prints, and ``largest`` is the largest absolute
    value that is expected. ``errors`` are absolute and relative, by variant that was called, and
    ``failures`` say why others could not be. ``differs`` says at which place the baseline has
    another NaN or infinity than the reference: then it has no error. ``accepted``: the study has a
    check of its own, and it accepts what the baseline gives; ``refused`` says why not. ``larger``
    are the baseline's errors for larger inputs, ``larger_reference`` is the relative one of the
    reference in its own precision. ``constant``: other random inputs have the same result.
    ``structured``: the reference does not bear inputs of which each piece has another factor, such
    as a matrix that must be positive definite. ``few``: an output has too few elements for a ratio
    of errors.
    """

    inputs: dict[str, str]
    outputs: tuple[str, ...]
    destinations: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    exact: bool = True
    refusal: str = ""
    rounds: str = ""
    dtype: str = ""
    bytes: dict[str, float] = {}
    largest: float = 0.0
    errors: dict[str, tuple[float, float]] = {}
    differs: str = ""
    larger: tuple[float, float] | None = None
    larger_reference: float = 0.0
    constant: bool = False
    structured: bool = False
    few: bool = False
    accepted: bool = False
    refused: str = ""
    failures: dict[str, ErrorText] = {}

    @property
    def doubt(self) -> str:
        """The sentence that warns of a check which says little, "" for none."""
        same = "warning: other random inputs give the same result, so that a constant would pass"
        return f"{same} the check" if self.constant else ""


class ShippedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that a variant declares by ``cuda.kernel``."""

    source: str
    name: str
    defines: dict[str, str]
    options: tuple[str, ...]

    @property
    def symbol(self) -> str:
        """The symbol that ``cuda.py`` of a package computes of the same declaration."""
        macros = [f"{name}={value}" for name, value in sorted(self.defines.items())]
        key = " ".join([self.source, self.name, *macros])
        return f"workbench_{sha256(key.encode()).hexdigest()[:16]}"


class Packable(_Event, frozen=True, kw_only=True, tag="packable"):
    """A variant's operator: names and kinds of its arguments, the number of its outputs, the inputs
    for which it was checked, tensors that are not in order there, and the kernels that it declares.
    """

    arguments: tuple[tuple[str, str], ...]
    outputs: int
    calls: tuple[dict[str, Parameter], ...]
    strided: tuple[str, ...]
    kernels: tuple[ShippedKernel, ...]


class Broken(_Event, frozen=True, kw_only=True, tag="broken"):
    """The worker itself cannot go on."""

    error: ErrorText


class Done(_Event, frozen=True, kw_only=True, tag="done"):
    """The last event of a worker that did all it was asked to."""


Event = (
    Hello
    | DeviceFound
    | Start
    | Built
    | Checked
    | Round
    | TimedSession
    | Witnessed
    | SessionsDone
    | Captured
    | Failed
    | Learned
    | Packable
    | Broken
    | Done
)

_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def _plain(value: Any) -> Any:
    """Strings and numbers of other libraries as Python's own."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise NotImplementedError(f"a {type(value).__name__} in an event")


def _finite(value: Any) -> Any:
    """Null in place of NaN and infinity, for which JSON has no numbers."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def encode(event: Event) -> bytes:
    """An event as a line. Text that is no Unicode, as in some file names, is replaced."""
    data = _finite(msgspec.to_builtins(event, enc_hook=_plain))
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "replace")


def decode(line: str) -> Event:
    """Raises ToolFailed for a line that is no event."""
    try:
        return _events.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ToolFailed(
            f"the worker wrote what is no event: {error}: {line[:80]!r}",
            hint="run the same command again: what was finished is kept",
        ) from None


def write_job(path: Path, job: Job) -> None:
    path.write_bytes(msgspec.json.encode(job))


def read_job(path: Path) -> Job:
    job: Job = msgspec.json.decode(path.read_bytes(), type=Job)
    return job


def write_turn(folder: Path, variants: list[str]) -> None:
    """Write the turn at once, since the worker looks for it all the time."""
    hidden = folder / f".{TURN}"
    hidden.write_bytes(msgspec.json.encode(variants))
    hidden.rename(folder / TURN)


def write_calls(folder: Path, calls: Mapping[str, tuple[Call, ...]]) -> None:
    """Write which nodes a call of each variant launched when it was timed, for a capture."""
    (folder / CALLS).write_bytes(msgspec.json.encode(calls))


def read_calls(folder: Path) -> dict[str, tuple[Call, ...]]:
    """Empty where nothing was timed."""
    if not (folder / CALLS).is_file():
        return {}
    return msgspec.json.decode((folder / CALLS).read_bytes(), type=dict[str, tuple[Call, ...]])


def read_turn(folder: Path) -> tuple[str, ...]:
    return msgspec.json.decode((folder / TURN).read_bytes(), type=tuple[str, ...])
