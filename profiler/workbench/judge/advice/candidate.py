"""A limit, and a kind of change that may lift it: what a rule proposes, before they are ranked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from workbench.derive.figures import STALL
from workbench.judge.advice.subject import PIPES, Subject
from workbench.ncu.catalog import STALL_PREFIX
from workbench.words import Change, Stage

LEAST = 0.03  # of the duration: less is not worth a step, see the gate
NAMED, ONE_WAY = 1.0, 0.5  # the evidence names the cause; it leaves several ways open
OF_MEMORY = {"sectors": "excess sectors", "shared": "bank conflicts"}
OF_LAUNCH = {
    Stage.LAUNCH: "head and tail of the launch",
    Stage.GRID: "small grid",
    Stage.TAIL: "tail of the grid",
    Stage.IMBALANCE: "imbalance of the SMs",
    Stage.ISSUE: "instructions",
}
LEVELS = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


@dataclass(frozen=True)
class Limit:
    """``what`` of the stage it is (a level, a pipe, a stall reason), and its ``share`` of the
    duration. ``metric`` shows it with ``value`` in ``unit``; lines are found by ``counters``.
    """

    stage: Stage
    what: str
    share: float
    metric: str
    value: float
    unit: str = ""
    counters: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Stable: ``latency.long_scoreboard``."""
        return f"{self.stage}.{self.what}" if self.what else str(self.stage)

    @property
    def title(self) -> str:
        """In the words of the stage."""
        if self.stage == Stage.LATENCY:  # what is waited for stands in every reason
            return "latency"
        if self.stage == Stage.MEMORY:
            return OF_MEMORY.get(self.what) or f"{resource(self.what)} bandwidth"
        return resource(self.what) if self.what else OF_LAUNCH.get(self.stage, str(self.stage))


@dataclass(frozen=True)
class Candidate:
    """``saved`` is the share of the duration that the change could take away, before the next limit
    is looked at; ``sure`` how far the evidence names this way. ``why`` says where ``saved`` comes
    from; ``relieved`` are the resources that the change asks less of.
    """

    limit: Limit
    change: Change
    saved: float
    sure: float
    why: str
    relieved: frozenset[str] = frozenset()


def resource(name: str) -> str:
    """A level of memory or a pipe in words."""
    if name in PIPES:
        return f"{name.upper() if name != 'tensor' else name} pipe"
    return LEVELS.get(name, name.replace("_", " "))


def waiting(subject: Subject, what: str, *others: str) -> Limit:
    """Warps that wait for a reason, or for several that have one cause; named after the first."""
    return Limit(
        stage=Stage.LATENCY,
        what=what,
        share=subject.waits(what, *others),
        metric=STALL_PREFIX + what,
        value=subject.value(STALL + what) or 0.0,
        unit="% of samples",
        counters=(what, *others),
    )


@dataclass(frozen=True)
class Kind:
    """``title`` in a few words; ``how`` says what to do."""

    title: str
    how: str


CATALOGUE: Mapping[Change, Kind] = MappingProxyType(
    {
        Change.TILE_SHARED: Kind(
            "tiles in shared memory",
            "fetch what several threads read once per block, and read it from there",
        ),
        Change.REUSE: Kind(
            "larger tiles, more reuse",
            "what is read again kept in registers; more results per thread or block for each byte "
            "fetched; blocks that share data close in time, or in a cluster",
        ),
        Change.VECTOR: Kind(
            "vector loads and stores", "16 bytes a lane, and several in flight before the first use"
        ),
        Change.COALESCE: Kind(
            "coalesced accesses", "neighbouring lanes at neighbouring addresses, by another layout"
        ),
        Change.SWIZZLE: Kind(
            "swizzled or padded tiles", "so that the lanes of a warp meet in no bank"
        ),
        Change.ASYNC_COPY: Kind(
            "asynchronous copies, a ring of tiles",
            "cp.async: the next tiles on their way while one is worked on",
        ),
        Change.BULK_COPY: Kind(
            "bulk copies (TMA) and mbarriers",
            "one thread starts a tile's copy; no registers, no address arithmetic, no block-wide "
            "barrier",
        ),
        Change.TENSOR: Kind(
            "tensor cores", "the product as mma.sync, or wgmma from Hopper on, summed in fp32"
        ),
        Change.OTHER_PIPE: Kind(
            "work on another pipe",
            "a part of what the busy unit does elsewhere: polynomials for exponentials, say",
        ),
        Change.LESS_WORK: Kind(
            "fewer instructions",
            "packed arithmetic, what is invariant out of the loop, what is seldom needed on a "
            "branch of its own",
        ),
        Change.OPERANDS: Kind(
            "operands from elsewhere",
            "constants and what all threads share from uniform registers or the constant bank, so "
            "that register ports are free",
        ),
        Change.SMALLER_CODE: Kind(
            "smaller code", "less unrolling and inlining, so that the loop stays in the cache"
        ),
        Change.OVERLAP: Kind(
            "overlap what is independent",
            "start the next long operation before the result of the last is needed; independent "
            "chains; groups of warps in different phases",
        ),
        Change.SPECIALISE: Kind(
            "warp specialisation", "warps that only fetch, and others that only compute"
        ),
        Change.BARRIERS: Kind(
            "fewer or smaller barriers",
            "wait for those that matter: a warp, a named barrier, an mbarrier of the tile",
        ),
        Change.WARPS: Kind(
            "more warps, another block size",
            "smaller tiles or blocks, so that others run while one waits",
        ),
        Change.REGISTERS: Kind(
            "fewer registers", "smaller tiles per thread, or a bound for the compiler; no spills"
        ),
        Change.SPLIT: Kind(
            "split the work further",
            "more threads or blocks for the same result, each with a part of the sum, merged at "
            "the end",
        ),
        Change.BALANCE: Kind(
            "balance: persistent blocks, the longest first",
            "as many blocks as fit, which take work from a counter",
        ),
        Change.TAIL: Kind(
            "a grid without a tail", "blocks of a size that fills whole waves, or persistent ones"
        ),
        Change.FUSE: Kind(
            "fuse with its neighbours", "one launch, and nothing written that the next reads back"
        ),
        Change.EARLY: Kind("an earlier start", "programmatic dependent launch, or a CUDA graph"),
        Change.NARROW: Kind("narrower types", "half the bytes a value, where the error allows it"),
        Change.CACHE_HINTS: Kind(
            "cache hints", "accesses marked as used once, or to be kept; no rule proposes it"
        ),
        Change.CHOOSE: Kind("choose by shape", "the fastest of several kernels for each shape"),
    }
)
