"""What to try next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from workbench.judge import advice_rules
from workbench.judge.advice_rules import LEAST, Advice, Limit, Spot, resource
from workbench.judge.findings import sentence
from workbench.judge.ladder import Ablation
from workbench.ncu.catalog import DRAM
from workbench.render import doc
from workbench.render.doc import factor, number, percent
from workbench.words import ABSENT, Change, Stage

TITLE = "What to try next"
NOTHING = f"nothing in the capture promises {percent(LEAST)} of the duration"
AT_ITS_BANDWIDTH = f"{Stage.MEMORY}.{DRAM}/{Change.FUSE}"


def to_try(advice: Sequence[Advice] | None, after: str = "") -> doc.Section:
    """The list that an output of one variant ends in; ``after`` names it, or one of several."""
    title = doc.line(TITLE, *((" after ", doc.code(after)) if after else ()))
    return doc.section("to-try", title, *listed(advice))


def first_look(advice: Sequence[Advice] | None, hottest: Spot | None) -> list[doc.Block]:
    """Return what limits a kernel, its hottest line and what to try, in a line each."""
    first = advice_rules.to_try(advice)
    if not first:
        return [doc.paragraph(f"limit: {ABSENT}" if first is None else NOTHING)]
    worst = max(first, key=lambda one: one.limit.share)
    limit = f"{limit_title(worst.limit)}; {sentence(worst.why)}. "
    where = doc.line(doc.strong("Hottest line: "), spot(hottest), ".")
    items = [
        doc.line(doc.strong(CATALOGUE[one.change].title), ", ", spot(one.spot)) for one in first
    ]
    return [
        doc.paragraph(doc.strong("Limit: "), limit, where),
        doc.paragraph(f"{TITLE}:"),
        doc.bullets(items, ordered=True),
    ]


def listed(advice: Sequence[Advice] | None) -> list[doc.Block]:
    """List advice without a title: what is left at most where memory is the limit, then the ranked
    advice.
    """
    first = advice_rules.to_try(advice)
    if not first:
        return [doc.paragraph(NOTHING if first is not None else ABSENT)]
    room = next((one for one in advice or () if one.id == AT_ITS_BANDWIDTH), None)
    blocks: list[doc.Block] = []
    if room:  # the advice to fuse is given where no byte is read twice
        at = f"{number(room.limit.value)} {room.limit.unit}"
        most = factor(1 / room.limit.share)
        text = f"DRAM is at {at}: what moves as many bytes gains {most} at most."
        blocks.append(doc.paragraph(text))
    items = [_whole(one, first[:place]) for place, one in enumerate(first)]
    return [*blocks, doc.bullets(items, ordered=True)]


def _whole(advice: Advice, before: Sequence[Advice]) -> doc.Text:
    """The change, the limit with its reason unless it stands ``before``, and the steps that made
    this change to this variant already.
    """
    tried = [doc.line(doc.code(step.variant), f" {step.verdict.label}") for step in advice.tried]
    return doc.line(
        doc.strong(CATALOGUE[advice.change].title),
        f": {CATALOGUE[advice.change].how}. Limit: ",
        _limit(advice, before),
        *((". Tried here: ", doc.joined(tried)) if tried else ()),
        ".",
    )


def _limit(advice: Advice, before: Sequence[Advice]) -> doc.Text:
    same = next((n for n, b in enumerate(before, 1) if b.limit.id == advice.limit.id), 0)
    if same:
        other = "" if before[same - 1].why == advice.why else f"; {sentence(advice.why)}"
        return doc.line(f"as {same}{other}")
    return doc.line(
        f"{limit_title(advice.limit)}; {sentence(advice.why)} (",
        doc.code(advice.limit.metric),
        f" = {number(advice.limit.value)}{advice.limit.unit and ' '}{advice.limit.unit}); ",
        spot(advice.spot),
    )


def spot(place: Spot | None) -> doc.Text:
    """``file:line`` and its share of all stall time."""
    if place is None:
        return doc.line("no line of its own")
    called = (", called at ", doc.place(*place.called_at)) if place.called_at else ()
    share = f", {percent(place.share)} of the stall time" if place.share else ""
    return doc.line(doc.place(place.file, place.line), *called, share)


def next_steps(ablation: Ablation) -> list[doc.Block]:
    """The advice on the best variant, or on the last step before it that was profiled."""
    row = next((row for row in ablation.path[::-1] if row.advice is not None), ablation.best)
    if row is None:
        return listed(None)
    return [doc.paragraph("In ", doc.code(row.chosen or row.variant), ":"), *listed(row.advice)]


OF_MEMORY = {"sectors": "excess sectors", "shared": "bank conflicts"}
OF_LAUNCH = {
    Stage.LAUNCH: "start and end of the launch",
    Stage.GRID: "small grid",
    Stage.TAIL: "tail of the grid",
    Stage.IMBALANCE: "imbalance of the SMs",
    Stage.ISSUE: "instructions",
}


def limit_title(limit: Limit) -> str:
    """Name a limit in the words of the stage."""
    if limit.stage == Stage.LATENCY:  # what is waited for stands in every reason
        return "latency"
    if limit.stage == Stage.MEMORY:
        return OF_MEMORY.get(limit.what) or f"{resource(limit.what)} bandwidth"
    return resource(limit.what) if limit.what else OF_LAUNCH.get(limit.stage, str(limit.stage))


@dataclass(frozen=True)
class Recipe:
    """``title`` in a few words; ``how`` says what to do."""

    title: str
    how: str


CATALOGUE: Mapping[Change, Recipe] = MappingProxyType(
    {
        Change.TILE_SHARED: Recipe(
            "tiles in shared memory",
            "fetch what several threads read once per block, and read it from there",
        ),
        Change.REUSE: Recipe(
            "larger tiles, more reuse",
            "what is read again kept in registers; more results per thread or block for each byte "
            "fetched; blocks that share data close in time, or in a cluster",
        ),
        Change.VECTOR: Recipe(
            "vector loads and stores", "16 bytes a lane, and several in flight before the first use"
        ),
        Change.COALESCE: Recipe(
            "coalesced accesses", "neighbouring lanes at neighbouring addresses, by another layout"
        ),
        Change.SWIZZLE: Recipe(
            "swizzled or padded tiles", "so that the lanes of a warp meet in no bank"
        ),
        Change.ASYNC_COPY: Recipe(
            "asynchronous copies, a ring of tiles",
            "cp.async: the next tiles on their way while one is worked on",
        ),
        Change.BULK_COPY: Recipe(
            "bulk copies (TMA) and mbarriers",
            "one thread starts a tile's copy; no registers, no address arithmetic, no block-wide "
            "barrier",
        ),
        Change.TENSOR: Recipe(
            "tensor cores", "the product as mma.sync, or wgmma from Hopper on, summed in fp32"
        ),
        Change.OTHER_PIPE: Recipe(
            "work on another pipe",
            "a part of what the busy unit does elsewhere: polynomials for exponentials, say",
        ),
        Change.LESS_WORK: Recipe(
            "fewer instructions",
            "packed arithmetic, what is invariant out of the loop, what is seldom needed on a "
            "branch of its own",
        ),
        Change.OPERANDS: Recipe(
            "operands from elsewhere",
            "constants and what all threads share from uniform registers or the constant bank, so "
            "that register ports are free",
        ),
        Change.SMALLER_CODE: Recipe(
            "smaller code", "less unrolling and inlining, so that the loop stays in the cache"
        ),
        Change.OVERLAP: Recipe(
            "overlap what is independent",
            "start the next long operation before the result of the last is needed; independent "
            "chains; groups of warps in different phases",
        ),
        Change.SPECIALISE: Recipe(
            "warp specialisation", "warps that only fetch, and others that only compute"
        ),
        Change.BARRIERS: Recipe(
            "fewer or smaller barriers",
            "wait for those that matter: a warp, a named barrier, an mbarrier of the tile",
        ),
        Change.WARPS: Recipe(
            "more warps, another block size",
            "smaller tiles or blocks, so that others run while one waits",
        ),
        Change.REGISTERS: Recipe(
            "fewer registers", "smaller tiles per thread, or a bound for the compiler; no spills"
        ),
        Change.SPLIT: Recipe(
            "split the work further",
            "more threads or blocks for the same result, each with a part of the sum, merged at "
            "the end",
        ),
        Change.BALANCE: Recipe(
            "balance: persistent blocks, the longest first",
            "as many blocks as fit, which take work from a counter",
        ),
        Change.TAIL: Recipe(
            "a grid without a tail", "blocks of a size that fills whole waves, or persistent ones"
        ),
        Change.FUSE: Recipe(
            "fuse with its neighbours", "one launch, and nothing written that the next reads back"
        ),
        Change.EARLY: Recipe("an earlier start", "programmatic dependent launch, or a CUDA graph"),
        Change.NARROW: Recipe(
            "narrower types", "half the bytes a value, where the error allows it"
        ),
        Change.CACHE_HINTS: Recipe(
            "cache hints", "accesses marked as used once, or to be kept; no rule proposes it"
        ),
        Change.CHOOSE: Recipe("choose by shape", "the fastest of several kernels for each shape"),
    }
)
