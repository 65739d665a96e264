"""Advice by how busy memory, pipes and issue slots are, and by the launch and its grid."""

from __future__ import annotations

import math
from collections.abc import Iterator

from workbench.derive.diff.costs import SECTORS, WAVEFRONTS
from workbench.derive.factors import METRICS as TIME_METRICS
from workbench.derive.factors import TimeBudget
from workbench.derive.roofline.ceilings import DRAM, L1, LEVELS, METRICS
from workbench.judge.advice.subject import (
    ISSUE,
    MMA,
    NAMED,
    ONE_WAY,
    PIPES,
    WGMMA,
    AdvisedKernel,
    Candidate,
    Limit,
    resource,
)
from workbench.judge.findings import finding, percent
from workbench.ncu.catalog import catalog
from workbench.words import Change, Stage

BOUND = 0.6  # of a bandwidth, a pipe's rate, or of the issue slots
BUSY = 0.3  # of a pipe: with another as busy, the two may take turns
TURNS = 0.7  # of the time, both together
HEAVY = 0.3  # issue slots: fewer instructions are worth a look
SILENT = 0.01  # of the tensor pipe: it is not in use
RIDGE = 16  # FLOP per byte: with more, arithmetic outlasts the traffic even where it is fastest
TENSOR_TYPES = ("float16", "bfloat16", "float32", "tf32", "int8", "fp8")
ARITHMETIC = ("wait", "math_pipe_throttle", "short_scoreboard", "mio_throttle", "dispatch_stall")
PER_INSTRUCTION = ("wait", "math_pipe_throttle", "dispatch_stall")
OF_PRODUCTS = frozenset(("fma", "lsu", ISSUE, "l1"))
HALF = 0.5


def pipe_rules(subject: AdvisedKernel) -> Iterator[Candidate]:
    """By what the pipes did, and what the work asks of them."""
    yield from _tensor(subject)
    yield from _busy(subject)
    yield from _turns(subject)
    yield from _instructions(subject)


def pipe_limit(subject: AdvisedKernel, pipe: str, share: float | None = None) -> Limit:
    """A pipe by how busy it was."""
    busy = subject.busy.get(pipe, 0.0)
    share = busy if share is None else share
    metric = catalog()[f"{pipe}_pipe"].names[0]
    counters = ("math_pipe_throttle", "wait", "short_scoreboard")
    return Limit(Stage.PIPE, pipe, share, metric, 100 * busy, "% of peak", counters)


def is_product(subject: AdvisedKernel) -> bool:
    """Whether the work can only be matrix products: much arithmetic, in a tensor-core type."""
    work = subject.work
    return work is not None and work.dtype in TENSOR_TYPES and intensity(subject) >= RIDGE


def intensity(subject: AdvisedKernel) -> float:
    """FLOP a byte of the work; those that were executed, where the study says none."""
    work = subject.work
    if work is None or not work.bytes:
        return 0.0
    return (work.flops or subject.executed or 0.0) / work.bytes


def _tensor(subject: AdvisedKernel) -> Iterator[Candidate]:
    pipe = subject.busy.get("tensor")
    if pipe is None or subject.budget is None or not is_product(subject):
        return
    saved = subject.budget.issuing + subject.waits(*ARITHMETIC)
    if pipe < SILENT and subject.work:
        limit, single = pipe_limit(subject, "fma", saved), subject.work.dtype == "float32"
        flop_per_byte, assumed = intensity(subject), not subject.work.flops
        message = f"{flop_per_byte:.0f} FLOP a byte, none on the tensor cores"
        message += ", which take TF32, where the error allows it" if single else ""
        message += "; if these are products of matrices" if assumed else ""
        why = finding(
            "advice.no_tensor_cores",
            message,
            flop_per_byte=flop_per_byte,
            tf32=single or None,
            assumed=assumed or None,
        )
        sure = NAMED if subject.work.flops and not single else ONE_WAY
        yield Candidate(limit, Change.TENSOR, saved, sure, why, OF_PRODUCTS)
    elif subject.path == MMA and WGMMA in subject.tensor_peaks:
        limit = pipe_limit(subject, "tensor", saved)
        message = (
            "mma.sync, its fragment loads and their waits, where wgmma reads shared memory itself"
        )
        why = finding("advice.mma_sync", message)
        yield Candidate(limit, Change.TENSOR, saved, ONE_WAY, why, OF_PRODUCTS)


def _busy(subject: AdvisedKernel) -> Iterator[Candidate]:
    """A pipe near its rate, or one that warps wait for."""
    pipes = {name: subject.busy[name] for name in PIPES if name in subject.busy}
    throttled = subject.waits("math_pipe_throttle")
    arithmetic = {name: share for name, share in pipes.items() if name != "lsu"}
    busiest = max(arithmetic, key=lambda name: arithmetic[name], default="")
    for name in pipes:
        waits = throttled if name == busiest else 0.0
        if name == "lsu":
            waits = subject.waits("lg_throttle", "mio_throttle")
        yield from _relief(subject, name, waits)


def _relief(subject: AdvisedKernel, pipe: str, waits: float) -> Iterator[Candidate]:
    """``waits`` is the share of the duration in which nobody could go because of the pipe."""
    limit, relieved = pipe_limit(subject, pipe), frozenset((pipe,))
    saved = max(limit.share * HALF if limit.share >= BOUND else 0.0, waits)
    message = (
        f"the {resource(pipe)} is busy for {percent(limit.share)} of the time, and waits for it "
        f"take {percent(waits)}"
    )
    why = finding("advice.busy", message, pipe=pipe, share=limit.share, share_waited=waits)
    if pipe == "xu":
        yield Candidate(limit, Change.OTHER_PIPE, saved, NAMED, why, relieved)
    elif pipe == "fma":
        yield Candidate(limit, Change.LESS_WORK, saved, ONE_WAY, why, relieved | {ISSUE})
    elif pipe == "lsu":
        yield Candidate(limit, Change.VECTOR, saved, ONE_WAY, why, relieved | {ISSUE, "l1"})
    else:
        yield Candidate(limit, Change.OVERLAP, saved, ONE_WAY, why)
        if limit.share >= BOUND:
            yield Candidate(limit, Change.NARROW, saved, ONE_WAY / 2, why, relieved)


def _turns(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Two pipes that are busy for most of the time together, and neither for most of it."""
    pipes = sorted(((subject.busy.get(n, 0.0), n) for n in PIPES), reverse=True)
    (most, first), (less, second) = pipes[:2]
    if less < BUSY or most >= BOUND or most + less < TURNS:
        return
    limit = pipe_limit(subject, first, most)
    message = f"{resource(first)} and {resource(second)} seem to take turns"
    why = finding("advice.turns", message, pipe=first, other_pipe=second)
    yield Candidate(limit, Change.OVERLAP, 1 - most, ONE_WAY, why)


def _instructions(subject: AdvisedKernel) -> Iterator[Candidate]:
    slots = subject.busy.get(ISSUE, 0.0)
    if subject.budget is None or slots < HEAVY:
        return
    share = subject.budget.issuing
    metric, value = "smsp__issue_active.avg.per_cycle_active", subject.value("issue_active")
    limit = Limit(Stage.ISSUE, "", share, metric, value or share, "inst/cycle", ("instructions",))
    sure = NAMED if slots >= BOUND else ONE_WAY
    message = "if every second instruction went, and what waits for it"
    why = finding("advice.half_the_instructions", message)
    relieved = frozenset((ISSUE, "fma", "lsu"))
    saved = HALF * (share + subject.waits(*PER_INSTRUCTION))
    yield Candidate(limit, Change.LESS_WORK, saved, sure, why, relieved)


FEW_WAVES = 8  # with more, a last wave that is not full is lost among them
MOST = 0.5  # of an imbalance that is explained by the last wave


def launch_rules(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Nothing where the cycles of the busiest SM were not collected."""
    if subject.budget is not None:
        yield from _head_and_tail(subject, subject.budget.head_tail)
        yield from _imbalance(subject, subject.budget)


def _head_and_tail(subject: AdvisedKernel, share: float) -> Iterator[Candidate]:
    metric, unit = f"1 - {TIME_METRICS['busiest']}", "% of the duration"
    limit = Limit(Stage.LAUNCH, "", share, metric, 100 * share, unit)
    why = finding("advice.head_and_tail", "no SM works in its head and tail")
    if subject.launches > 1:
        yield Candidate(limit, Change.FUSE, share, NAMED, why)
    else:
        yield Candidate(limit, Change.EARLY, share, ONE_WAY, why)
        yield Candidate(limit, Change.FUSE, share, ONE_WAY / 2, why)


def _imbalance(subject: AdvisedKernel, budget: TimeBudget) -> Iterator[Candidate]:
    share = budget.imbalance
    blocks = subject.value("grid") if subject.launches == 1 else None
    if blocks and subject.sms and blocks < subject.sms:
        limit = Limit(Stage.GRID, "", share, "launch__grid_size", blocks, "blocks")
        message = f"{blocks:.0f} blocks for {subject.sms:.0f} SMs"
        why = finding("advice.few_blocks", message, blocks=blocks, sms=subject.sms)
        yield Candidate(limit, Change.SPLIT, min(share, 1 - blocks / subject.sms), NAMED, why)
        return
    waves = subject.value("waves")
    if waves and _last_wave(subject, waves, blocks) >= MOST * share:
        metric = "launch__waves_per_multiprocessor"
        limit = Limit(Stage.TAIL, "", share, metric, waves, "waves")
        why = finding("advice.last_wave", "most SMs are idle while the last wave of blocks runs")
        yield Candidate(limit, Change.TAIL, share, NAMED, why)
        yield Candidate(limit, Change.BALANCE, share, ONE_WAY, why)
        return
    value = 100 * budget.balance
    limit = Limit(Stage.IMBALANCE, "", share, TIME_METRICS["balance"], value, "% of the busiest SM")
    why = finding("advice.imbalance", "an average SM is done before the busiest one")
    yield Candidate(limit, Change.BALANCE, share, NAMED, why)


def _last_wave(subject: AdvisedKernel, waves: float, blocks: float | None) -> float:
    """The share of slots for blocks that are empty in the last wave, if all blocks are alike; with
    less than a wave, of SMs that have one block less than the others.
    """
    rounds = waves
    if waves < 1:
        rounds = blocks / subject.sms if blocks and subject.sms else 0.0
    if not rounds or rounds > FEW_WAVES:
        return 0.0
    return 1 - rounds / math.ceil(rounds)


TWICE = 1.2  # times the least bytes: more is read or written more than once
WASTED = 0.2  # of the sectors
WIDE = ("float32", "float64", "int64")  # types that have half as wide ones
GLOBAL = ("long_scoreboard", "lg_throttle", "drain")
QUEUE = ("short_scoreboard", "mio_throttle")
SHARED = (*QUEUE, "barrier")
REFETCHED = frozenset(LEVELS)


def memory_rules(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Each level that is near its bandwidth, and what is lost on the way to it."""
    for level, one in subject.used.items():
        if one.share >= BOUND:
            yield from _bandwidth(subject, level, one.share)
    yield from _sectors(subject)
    yield from _conflicts(subject)
    yield from _spills(subject)
    yield from _atomics(subject)


def _bandwidth(subject: AdvisedKernel, level: str, share: float) -> Iterator[Candidate]:
    measured = "measured" if subject.used[level].measured else "theoretical"
    unit = f"% of the {measured} bandwidth"
    counters = ("long_scoreboard", "lg_throttle")
    limit = Limit(Stage.MEMORY, level, share, METRICS[level], 100 * share, unit, counters)
    excess = subject.excess(level)
    again = excess is not None and excess >= TWICE
    if again and excess:
        message = f"{excess:.3g} times the bytes that the work needs"
        saved = share * (1 - 1 / excess)
        why = finding("advice.bytes_again", message, times_bytes=excess)
    else:
        saved, why = share * HALF, finding("advice.half_the_bytes", "at most half of the bytes")
    if level == DRAM and not again:
        message = "if its input or output stayed on the GPU: at most half of the bytes"
        whole = finding("advice.stays_on_gpu", message)
        yield Candidate(limit, Change.FUSE, saved, ONE_WAY, whole, REFETCHED)
        if subject.work and subject.work.dtype in WIDE:
            yield Candidate(limit, Change.NARROW, saved, ONE_WAY / 2, why, REFETCHED)
        return
    bare = level != DRAM and subject.has_shared is False
    if bare:
        yield Candidate(limit, Change.TILE_SHARED, saved, NAMED, why, REFETCHED)
    sure = NAMED if again and not bare else ONE_WAY
    yield Candidate(limit, Change.REUSE, saved, sure, why, REFETCHED)


def _sectors(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Excess sectors, as far as warps wait for global memory or a level is near its bandwidth."""
    excess, sectors = subject.total(SECTORS), subject.sectors
    if not excess or not sectors:
        return
    wasted = excess / sectors
    off = [one.share for level, one in subject.used.items() if level != L1 and one.share >= BOUND]
    # Without shared memory, what waits for its queue waits behind these accesses.
    reasons = (*GLOBAL, *QUEUE) if subject.has_shared is False else GLOBAL
    share = max([subject.waits(*reasons), *off])
    if wasted < WASTED:
        return
    metric = "derived__memory_l2_theoretical_sectors_global_excessive"
    limit = Limit(Stage.MEMORY, "sectors", share, metric, excess, "sectors", (SECTORS,))
    mostly = _mostly(subject, excess, sectors)
    most_of_them = f", most of them {mostly}" if mostly else ""
    message = f"{percent(wasted)} of the sectors are more than its data needs{most_of_them}"
    why = finding("advice.wasted_sectors", message, share=wasted, mostly=mostly)
    yield Candidate(limit, Change.COALESCE, wasted * share, NAMED, why, frozenset((*LEVELS, "lsu")))


def _mostly(subject: AdvisedKernel, excess: float, sectors: float) -> str | None:
    """Whether half of the excess or more is "written" or "read", as far as that is certain: each
    request needs a sector at least, so that the others of its kind bound its excess.
    """
    loads, stores = subject.value("global_load_requests"), subject.value("global_store_requests")
    if loads is None or stores is None:
        return None
    read, written = (1e6 * subject.megabytes(f"global_{way}") / 32 for way in ("read", "write"))
    read_at_most, written_at_most = read - 1e6 * loads, written - 1e6 * stores
    if excess - (sectors - written - 1e6 * loads) >= HALF * excess:
        return "written"
    return "read" if written_at_most <= HALF * excess <= read_at_most else None


def _conflicts(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Passes of shared memory that bank conflicts add, as far as warps wait for it."""
    conflicts, cycles = subject.value("shared_conflicts"), subject.value("cycles")
    if not conflicts or not cycles or not subject.sms:
        return
    share = min(1.0, conflicts * 1e6 / subject.sms / cycles)
    metric = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
    counters = (WAVEFRONTS,) if subject.total(WAVEFRONTS) else SHARED
    limit = Limit(Stage.MEMORY, "shared", share, metric, conflicts * 1e6, "conflicts", counters)
    message = f"shared memory serves conflicts for {percent(share)} of the cycles"
    why = finding("advice.bank_conflicts", message, share=share)
    saved = min(share, subject.waits(*SHARED))
    yield Candidate(limit, Change.SWIZZLE, saved, NAMED, why, frozenset(("lsu",)))


def _spills(subject: AdvisedKernel) -> Iterator[Candidate]:
    """Registers in local memory, by their share of what threads load and store."""
    local = subject.megabytes("local_read", "local_write")
    if not local:
        return
    spilled = local / (local + subject.megabytes("global_read", "global_write"))
    metric = "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"
    waits = subject.waits(*GLOBAL)
    limit = Limit(Stage.MEMORY, "local", waits, metric, local, "MB", GLOBAL)
    message = f"{percent(spilled)} of the bytes that threads load and store are spilled registers"
    why = finding("advice.spills", message, share=spilled)
    relieved = frozenset((*LEVELS, "lsu"))
    yield Candidate(limit, Change.REGISTERS, spilled * waits, NAMED, why, relieved)


def _atomics(subject: AdvisedKernel) -> Iterator[Candidate]:
    """What reaches L2 beside stores; nothing after bulk copies, whose stores look like atomics."""
    sent = subject.megabytes("l1_to_l2")
    atomic = sent - subject.megabytes("global_write", "local_write")
    if subject.value("bulk_read") != 0 or atomic <= WASTED * sent:
        return
    metric = "l1tex__m_l1tex2xbar_write_bytes.sum"
    waits = subject.waits("lg_throttle", "drain", "mio_throttle")
    limit = Limit(Stage.MEMORY, "atomics", waits, metric, atomic, "MB", GLOBAL)
    message = f"{atomic:.0f} MB of atomics reach L2: sum in registers or shared memory first"
    why = finding("advice.atomics", message, megabytes=atomic)
    yield Candidate(limit, Change.REUSE, waits, NAMED, why, frozenset((*LEVELS, "lsu")))
