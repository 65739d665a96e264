"""Share what every package needs: states, verdicts, results, and a few constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., object])
K = TypeVar("K")
V = TypeVar("V")


def shown(computed: F) -> F:
    """Marks a property that a record shows in JSON as it shows its fields."""
    computed.__dict__["is_shown"] = True
    return computed


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Each key's values, in the order in which the keys first come."""
    values_by_key: dict[K, list[V]] = {}
    for key, value in pairs:
        values_by_key.setdefault(key, []).append(value)
    return values_by_key


SCHEMA_VERSION = 1
ABSENT = "not collected"
NONE = "—"  # where there is nothing to collect: the baseline has no parent
CHECKOUT = Path(__file__).resolve().parents[2]
OWN_EXTRA = (  # it is on no index
    f"pip install -e '{CHECKOUT}[{{}}]'"
    if (CHECKOUT / "pyproject.toml").is_file()
    else "pip install -e '.[{}]' in the workbench's own checkout"
)
INSTALL = OWN_EXTRA.format("gpu")
VIRTUAL_ROOT = "/workbench/kernels"  # what sources are compiled under: no machine's path
GENERATED_ROOT = "/workbench/"  # and what front ends generate while a worker runs
CLOCK_TOLERANCE = 0.02  # captures whose SM clocks differ by more are not compared in silence

Parameter = bool | int | float | str  # of a shape or of a variant
Inputs = dict[str, Any]  # of a call: tensors and plain values by the names that `run` takes


class Status(StrEnum):
    """Whether evidence belongs to the present sources; of a variant also that it failed."""

    CURRENT = "current"
    STALE = "stale"
    MISSING = "missing"
    DAMAGED = "damaged"  # of a capture: its report cannot be read, or is not what was recorded
    FAILED = "failed"


class Phase(StrEnum):
    """The work that a worker does with a variant."""

    BUILD = "build"
    CHECK = "check"
    TIME = "time"
    CAPTURE = "capture"
    TRACE = "trace"


class CheckResult(StrEnum):
    """How a variant stood against the float64 reference at one shape."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    CRASHED = "crashed"
    HUNG = "hung"


class Regime(StrEnum):
    """The surroundings of a timed call."""

    CHAINED = "chained"  # between neighbours that write its inputs and read its output
    BACK_TO_BACK = "back to back"  # call after call: throughput
    COLD = "cold"  # behind an overwritten L2
    ALONE = "alone"  # chained, with no other kernel until clock and power settle

    @property
    def label(self) -> str:
        """The name of a regime in a table for people."""
        return {"chained": "between kernels", "cold": "cold L2"}.get(self.value, self.value)


class NodeKind(StrEnum):
    """The kind of a node of a CUDA graph."""

    KERNEL = "kernel"
    MEMSET = "memset"
    MEMCPY = "memcpy"
    OTHER = "other"


BETWEEN, WITHOUT = "between two other kernels", "without other kernels"  # chained, and alone
HEADLINE = Regime.CHAINED  # the regime of a table's times
IN_TURN = (Regime.CHAINED, Regime.BACK_TO_BACK, Regime.COLD)  # those of a round of all kernels


class Origin(StrEnum):
    """The source of an output's figures."""

    RECORDED = "recorded"
    MEASURED = "measured"


class GateState(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"  # there is no evidence for it


class Verdict(StrEnum):
    """The verdict on a step, as JSON has it; ``label`` is the same in cells and sentences."""

    BASELINE = "baseline"
    KEPT = "kept"
    SLOWER = "slower"
    NO_GAIN = "no_gain"  # not slower for certain, and below the least speedup
    INACCURATE = "inaccurate"
    WRONG = "wrong"  # fails a check, the compiler or a cross-check
    UNSEEN_SHAPE = "unseen_shape"  # good only at the shapes that it was shown
    INCONCLUSIVE = "inconclusive"

    @property
    def label(self) -> str:
        return self.value.replace("_", " ")

    @property
    def is_rejected(self) -> bool:
        return self not in (Verdict.BASELINE, Verdict.KEPT, Verdict.INCONCLUSIVE)


class TryVerdict(StrEnum):
    """The verdict of ``workbench try``."""

    CORRECT = "correct"
    INACCURATE = "inaccurate"  # within the tolerance, with a larger error than a gate allows
    WRONG = "wrong"
    FAILED = "failed"  # it is right, and could not be timed or profiled
    UNCHECKED = "unchecked"  # it could not be called here


class Role(StrEnum):
    """The role of a row in the ladder of one shape."""

    STEP = "step"  # judged here
    START = "start"  # what a step starts from, for context: its own verdict is of another shape
    CHOICE = "choice"  # judged here, and only a choice among others
    REFERENCE = "reference"


class PredictionResult(StrEnum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_MEASURABLE = "not measurable"


class Written(StrEnum):
    """When a prediction was written: before or after the first measurement of its step."""

    BEFORE = "before"
    AFTER = "after"


class Known(StrEnum):
    """The state of a step's evidence when its predictions were first noted."""

    NOTHING = "nothing"
    CAPTURED = "captured"
    TIMED = "timed"
    UNKNOWN = "unknown"  # some of the evidence could not be read


class LineKind(StrEnum):
    """How a row of a diff came about; comments and blanks alone are ``COSMETIC``."""

    SAME = "same"
    COSMETIC = "cosmetic"
    CHANGED = "changed"
    REMOVED = "removed"
    ADDED = "added"


class Move(StrEnum):
    """The change of a variant from one commit to another."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    CANNOT_TELL = "cannot tell"
    BROKEN = "broken"  # it no longer compiles, or is wrong
    NEW = "new"
    GONE = "gone"


class Cause(StrEnum):
    """The cause that a move is put down to."""

    SOURCE = "source"
    COMPILER = "compiler"
    LIBRARY = "library"
    HARDWARE = "hardware or clock"
    METHOD = "method"  # other inputs, another ncu or other flags of it
    NOISE = "noise"


class Stage(StrEnum):
    """The limits of a kernel, in the order of a launch's life."""

    LAUNCH = "launch"  # head and tail of the launch, in which no SM works
    GRID = "grid"  # fewer blocks than SMs
    TAIL = "tail"  # the last wave of blocks is not full
    IMBALANCE = "imbalance"  # SMs done at different times
    MEMORY = "memory"  # the bandwidth of a level
    PIPE = "pipe"  # the rate of an execution unit
    ISSUE = "issue"  # instructions themselves
    LATENCY = "latency"  # warps wait, and too few others run meanwhile


class Change(StrEnum):
    """Kinds of change to a kernel; ``render/document/advice.py`` says what each is."""

    TILE_SHARED = "tile-shared"
    REUSE = "reuse"
    VECTOR = "vector"
    COALESCE = "coalesce"
    SWIZZLE = "swizzle"
    ASYNC_COPY = "async-copy"
    BULK_COPY = "bulk-copy"
    TENSOR = "tensor"
    OTHER_PIPE = "other-pipe"
    LESS_WORK = "less-work"
    OPERANDS = "operands"
    SMALLER_CODE = "smaller-code"
    OVERLAP = "overlap"
    SPECIALISE = "specialise"
    BARRIERS = "barriers"
    WARPS = "warps"
    REGISTERS = "registers"
    SPLIT = "split"
    BALANCE = "balance"
    TAIL = "tail"
    FUSE = "fuse"
    EARLY = "early"
    NARROW = "narrow"
    CACHE_HINTS = "cache-hints"
    CHOOSE = "choose"
