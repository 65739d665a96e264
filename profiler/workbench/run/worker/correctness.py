"""Correctness against the float64 reference: calls on copies of the inputs, from which a variant
cannot hide what it leaves unwritten, in the process of the variant, and what they gave is compared
in one that has none (``checking``).
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import torch
from msgspec import structs

from workbench.errors import UsageError, nearest
from workbench.evidence.records import CheckOutcome
from workbench.problems.given import Empty
from workbench.run.worker.output import (
    FEW,
    NAN_REFERENCE,
    NoResult,
    Outputs,
    RunFunction,
    compare,
    differs,
    elements_in_norm,
    expected_of,
    kept_gradient,
    kind_of,
    largest,
    outputs_of,
    paired,
    refuse_kind,
    refused_by,
    same_bits,
    tensors_of,
    type_name,
)
from workbench.run.worker.timing.graphs import captured, nodes
from workbench.run.worker.timing.neighbours import GUARD_BYTES, in_memory, is_dense, seed_all
from workbench.study.values import CANCELLED, Tolerance, tolerance_at
from workbench.words import CheckResult, Inputs

Stream = Callable[[], torch.cuda.Stream]
AS_REFERENCE = "reference() in study.py says which shape and kind of type an output has"
FINITE_REFERENCE = "check inputs() and reference() in study.py"
NO_BOUND = Tolerance(absolute=math.inf, relative=math.inf)
MOST_DRAWS = 24
MARKED = 4096  # elements of each input
DRAWS_SECONDS = 10.0  # of one kind of input at one shape, after which no further one is drawn


class ErrorPair(NamedTuple):
    """The error of an output and the primary reference's, both over a ``scale``: their own, 1.0, or
    the largest number of an output of few. Up to the ``limit`` the first is rounding.
    """

    ours: float
    theirs: float
    scale: float
    limit: float


@dataclass(frozen=True)
class ComparedCall:
    """One call. Errors are nan where there is none; ``times_reference`` is the multiple of the
    primary reference's on the same inputs, of the ``output`` that is worst beside it, whose error
    may be no more than ``rounding``. So many ``elements`` make up the norm of an output at least.
    ``few`` are the error and the largest number of each output of few numbers: they may cancel, so
    that the relative error of one call is chance.
    """

    absolute: float
    relative: float
    why: str
    varies: bool = False
    output: str = ""
    hint: str = ""
    times_reference: float | None = None
    rounding: bool = False
    errors: Mapping[str, ErrorPair] = field(default_factory=dict)
    elements: float = FEW
    few: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def multiple(relative: float, reference: float) -> float | None:
    """None where the error is not finite, or the reference is exact."""
    return relative / reference if math.isfinite(relative) and reference else None


class ShownCalls:
    """The outputs of the calls on one draw as they come: of a first call, of a second, and of one
    that a graph replays, where one can capture it. Kept are the first, and the graph's where they
    have other bits.
    """

    def __init__(self) -> None:
        self.count, self.varies, self.unsteady, self.broken = 0, False, "", ""
        self.in_graph: Outputs | None = None
        self.kept = Outputs({}, frozenset())

    def take(self, outputs: Outputs) -> None:
        self.count += 1
        if self.count == 1:
            self.kept = outputs
        elif self.count == 2:
            self.varies, self.unsteady = differs(self.kept, outputs)
        else:
            other, self.broken = differs(self.kept, outputs)
            self.in_graph = outputs if other else None


class CallsMade(msgspec.Struct, frozen=True, tag=True):
    """The input, or the memory around one, that is not what it was, "" for none; and the mark of
    all inputs.
    """

    touched: str
    mark: int


# Calls on the inputs of a kind and a seed, or on those handed over, whose outputs it shows: one
# alone, or all.
Caller = Callable[[str, int, Inputs, bool, Callable[[Outputs], None]], CallsMade]


def make_calls(
    study: ModuleType,
    run: RunFunction,
    shape: Any,
    side: Stream | None,
    kind: str,
    seed: int,
    handed: Inputs,
    alone: bool,
    show: Callable[[Outputs], None],
) -> CallsMade:
    """Nothing that could be copied is in memory while ``run`` works: the reference comes after, in
    another process. ``side`` gives the stream on which a call is captured in a graph; None: on no
    GPU. ``alone``: after one call there is no second, nor one in a graph.

    Beside inputs and outputs there is never more than one and a half times as much again of ours,
    that of the process that compares included.
    """
    drawn = drawn_with(study, shape, kind, seed)
    drawn |= {
        name: value.requires_grad_(drawn[name].requires_grad) for name, value in handed.items()
    }
    calls = Calls(run, drawn, changed_in_place(study, drawn))
    poison_free_memory([buffer.numel() - 2 * GUARD_BYTES for buffer in calls.buffers.values()])
    out = calls.call()
    show(out)  # on the stream of the call alone: what still runs on another is not waited for
    torch.cuda.synchronize()
    if not alone:
        again = calls.again(out)
        show(again)
        if side and (replayed := calls.replayed(again, side)):
            show(replayed)
    return CallsMade(calls.touched(), mark_of(drawn))


def drawn_with(study: ModuleType, shape: Any, kind: str, seed: int) -> Inputs:
    """The inputs that a seed has in every process."""
    seed_all(seed)
    generator = torch.Generator("cuda").manual_seed(seed)
    drawn: Inputs = study.inputs(shape, generator)
    return study.adversarial[kind](drawn, generator) if kind else drawn


def mark_of(inputs: Inputs) -> int:
    """Tells draws apart: inputs() may draw from elsewhere than its generator."""
    mark = 0
    for value in tensors_of(inputs).values():
        if is_dense(value) and value.numel():
            first = in_memory(value.detach())[:MARKED].cpu()
            mark = crc32(first.view(torch.uint8).numpy().data, mark)
    return mark


def check_once(
    study: ModuleType,
    calls: Caller,
    shape: Any,
    kind: str = "",
    peer: RunFunction | None = None,
    *,
    alone: bool = False,
) -> ComparedCall:
    """On fresh inputs, of which ``calls`` shows the outputs, of one call ``alone`` or of all."""
    seed, shown = secrets.randbits(48), ShownCalls()
    try:
        made = calls(kind, seed, {}, alone, shown.take)
        drawn = drawn_with(study, shape, kind, seed)
        if mark_of(drawn) != made.mark:  # drawn from elsewhere: the variant is given these
            shown = ShownCalls()
            made = calls(kind, seed, tensors_of(drawn), alone, shown.take)
        if shown.count < 2 - alone:
            raise NoResult("its process shows no second call")
        in_place = changed_in_place(study, drawn)
        expected = expected_of(study.reference(**copied(drawn, in_place)))
        bound = tolerance_at(study.tolerance, shape)
        is_authority = hasattr(study, "accepts")  # our errors stand beside what it says
        allowed = NO_BOUND if is_authority else bound
        call, errors = judged(shown.kept, expected, allowed)
        refused = "" if call.why else refused_by(study, copied(drawn, in_place), shown.kept)
        broken = shown.broken
        if shown.in_graph and not (call.why or refused or broken):
            other, _ = judged(shown.in_graph, expected, allowed)
            few = {name: max(pair, other.few.get(name, pair)) for name, pair in call.few.items()}
            call = replace(call, few=few)
            broken = other.why or refused_by(study, copied(drawn, in_place), shown.in_graph)
    except NoResult as error:
        return ComparedCall(math.nan, math.nan, error.message, hint=error.hint)
    why = call.why or refused or made.touched or shown.unsteady
    call = replace(call, varies=shown.varies, why=why)
    if broken and not call.why:
        call = replace(call, why=f"in a CUDA graph: {broken}")
    if call.why or peer is None:
        return call
    del shown
    inputs = copied(drawn, in_place)
    limit = (lambda _: math.inf) if is_authority else bound.rounding
    with_reference = beside(call, errors, expected, peer, inputs, in_place, limit)
    # What the study's own check accepts may be of another type than the reference's result.
    return call if with_reference.why and is_authority else with_reference


# By output: its type, its name in the reference, and its errors, absolute and relative.
Errors = Mapping[str, tuple[torch.dtype, str, tuple[float, float]]]


def judged(outputs: Outputs, expected: Outputs, bound: Tolerance) -> tuple[ComparedCall, Errors]:
    """Return the worst output, or the first wrong one, and the errors of each. Raises NoResult."""
    worst, errors = ComparedCall(0.0, 0.0, ""), {}
    for name, (mine, its) in paired(outputs, expected).items():
        out, wanted = outputs.tensors[mine], expected.tensors[its]
        if why := refuse_kind(out, wanted, name):
            return ComparedCall(math.nan, math.nan, why, output=name, hint=AS_REFERENCE), {}
        is_few = 0 < out.numel() < FEW
        allowed = replace(bound, relative=CANCELLED * bound.relative) if is_few else bound
        absolute, relative, why = compare(out, wanted, allowed)
        if why:
            hint = FINITE_REFERENCE if why == NAN_REFERENCE else ""
            why = f"'{name}': {why}" if name else why
            return ComparedCall(absolute, relative, why, output=name, hint=hint), {}
        errors[name] = out.dtype, its, (absolute, relative)
        if is_few:
            worst = replace(worst, few={**worst.few, name: (absolute, largest(wanted))})
        worst = replace(
            worst,
            absolute=max(worst.absolute, absolute),
            relative=max(worst.relative, relative),
            output=name if relative >= worst.relative else worst.output,
        )
    return worst, errors


def beside(
    call: ComparedCall,
    errors: Errors,
    expected: Outputs,
    peer: RunFunction,
    inputs: Inputs,
    in_place: Sequence[str],
    limit: Callable[[float], float],
) -> ComparedCall:
    """Add the error of the primary reference on the same inputs, where it has one.

    An output must have the type that the reference gives it: another is other work.
    """
    try:
        its = outputs_of(peer(**inputs), inputs, in_place)
        theirs = {wanted: out for out, wanted in paired(its, expected).values()}
    except Exception:  # it does not support these inputs, for whatever reason
        return call
    rated: dict[str, tuple[bool, float]] = {}  # whether it is more than rounding, and the multiple
    for name, (kind, wanted, error) in errors.items():
        out, right = its.tensors[theirs[wanted]], expected.tensors[wanted]
        absolute, relative = math.nan, math.nan
        if not refuse_kind(out, right):
            absolute, relative, _ = compare(out, right, NO_BOUND)
        if not math.isfinite(relative):
            return call
        if out.dtype != kind:
            what, its_own = f"'{name}' is" if name else "its result is", type_name(out.dtype)
            why = f"{what} {type_name(kind)}, where the primary reference gives {its_own}"
            return replace(call, why=why, output=name, hint=f"return {its_own}")
        unit = torch.finfo(kind).eps if out.is_floating_point() else 0.0
        pair = ErrorPair(error[1], relative, 1.0, limit(unit))
        if (times := multiple(pair.ours, pair.theirs)) is not None:
            rated[name] = pair.ours > pair.limit, times
        if out.numel() < FEW:
            # A reference that sums in a wider type is nearer than a result of this type can be.
            scale = largest(right)
            pair = ErrorPair(error[0], max(absolute, unit / 2 * scale), scale, pair.limit)
        elements = min(call.elements, elements_in_norm(right))
        call = replace(call, errors={**call.errors, name: pair}, elements=elements)
    if not rated:
        return call
    worst = max(rated, key=rated.__getitem__)
    matters, times = rated[worst]
    return replace(call, times_reference=times, rounding=not matters, output=worst)


def worse_of(outcome: CheckOutcome, call: ComparedCall, kind: str) -> CheckOutcome:
    """The worst of what was found and of one more call, on inputs of a ``kind``."""
    times = call.times_reference
    worse = times is not None and rank(outcome) < (not call.rounding, times)
    larger = outcome.times_reference is None and (outcome.relative or 0.0) <= call.relative
    return structs.replace(
        outcome,
        max_abs=max(outcome.max_abs or 0.0, call.absolute),
        relative=max(outcome.relative or 0.0, call.relative),
        times_reference=times if worse else outcome.times_reference,
        rounding=call.rounding if worse else outcome.rounding,
        kind=kind if worse else outcome.kind,
        varies=outcome.varies or call.varies,
        output=call.output if worse or (larger and times is None) else outcome.output,
    )


def rank(outcome: CheckOutcome) -> tuple[bool, float]:
    """How bad its multiple is: one of an error that is no more than rounding is never worse."""
    times = outcome.times_reference
    return times is not None and not outcome.rounding, times or 0.0


def is_due(calls: Sequence[ComparedCall], least: int, began: float) -> bool:
    """Whether one more is: they have too few elements for a ratio of errors."""
    if len(calls) < least:
        return True
    left = len(calls) < MOST_DRAWS and time.monotonic() - began < DRAWS_SECONDS
    return left and calls[0].elements * len(calls) < FEW


def pooled(worst: CheckOutcome, calls: Sequence[ComparedCall], kind: str) -> CheckOutcome:
    """Take one root mean square of errors over all ``calls``, where an output has few elements."""
    ratios: dict[str, tuple[bool, float]] = {}
    for name, first in calls[0].errors.items() if calls[0].elements < FEW else ():
        pairs = [call.errors[name] for call in calls if name in call.errors]
        ours, theirs, scale = (math.hypot(*side) for side in list(zip(*pairs, strict=True))[:3])
        if (times := multiple(ours, theirs)) is not None:
            ratios[name] = ours > first.limit * scale, times
    output = max(ratios, key=ratios.__getitem__, default="")
    if not ratios or ratios[output] <= rank(worst):
        return worst
    matters, times = ratios[output]
    return structs.replace(
        worst, times_reference=times, rounding=not matters, output=output, kind=kind
    )


def check_variant(
    study: ModuleType, made: Caller, shape: Any, peer: RunFunction | None = None
) -> CheckOutcome:
    """The worst of two plain draws and of one of every adversarial kind of the study, and of more
    where few elements make up an output's norm: these are of one call each.
    """
    worst = CheckOutcome(status=CheckResult.CORRECT, max_abs=0.0, relative=0.0)
    for name in ("", *getattr(study, "adversarial", {})):
        calls: list[ComparedCall] = []
        began = time.monotonic()
        least = 1 if name else 2
        while is_due(calls, least, began):
            try:
                call = check_once(study, made, shape, name, peer, alone=len(calls) >= least)
            except NotImplementedError as error:
                return CheckOutcome(status=CheckResult.UNSUPPORTED, why=str(error))
            if call.why:
                return CheckOutcome(
                    status=CheckResult.WRONG,
                    why=f"with {name} inputs: {call.why}" if name else call.why,
                    max_abs=finite(call.absolute),
                    relative=finite(call.relative),
                    kind=name,
                    output=call.output,
                    hint=call.hint,
                )
            calls.append(call)
            few = call.elements < FEW
            worst = worse_of(worst, replace(call, times_reference=None) if few else call, name)
        bound = tolerance_at(study.tolerance, shape)
        if not hasattr(study, "accepts") and (why := too_far(calls, bound)):
            return structs.replace(worst, status=CheckResult.WRONG, why=why, kind=name)
        worst = pooled(worst, calls, name)
    return worst


def too_far(calls: Sequence[ComparedCall], bound: Tolerance) -> str:
    """Why an output of few numbers is wrong by all ``calls`` together; "" where none is."""
    for name in calls[0].few:
        both = zip(*(call.few[name] for call in calls if name in call.few), strict=True)
        error, size = (math.hypot(*side) for side in both)
        if error > bound.relative * size:
            what = f"'{name}': " if name else ""
            relative = error / size if size else math.inf
            return (
                f"{what}relative error {relative:.3g} over {len(calls)} calls "
                f"(allowed {bound.relative:.3g})"
            )
    return ""


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


POISON = 0xFF  # every float format reads all-ones as NaN
POISON_BLOCKS = 8
POISON_BYTES = 256 << 20  # of all blocks together, where the inputs are not larger
LATE_CYCLES = 2_000_000  # about a millisecond; a launch takes Python some microseconds


def guarded(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy with NaN bytes on both sides, laid out as it is, and the whole buffer.

    A read past either end brings NaN into the result; a write changes the buffer.
    """
    size = tensor.numel() * tensor.element_size()
    buffer = torch.full((size + 2 * GUARD_BYTES,), POISON, dtype=torch.uint8, device=tensor.device)
    flat = buffer[GUARD_BYTES : GUARD_BYTES + size].view(tensor.dtype)
    dense = is_dense(tensor)
    inside = flat.as_strided(tensor.shape, tensor.stride()) if dense else flat.view(tensor.shape)
    inside.copy_(tensor.detach())
    return inside.requires_grad_(tensor.requires_grad), buffer


def pause() -> None:
    if torch.cuda.is_available():
        torch.cuda._sleep(LATE_CYCLES)


def poison_free_memory(sizes: Sequence[int]) -> None:
    """Fill free blocks of the ``sizes``, in bytes, with NaN, so that an output nobody wrote shows.

    All together are no larger than the sizes are, but for small ones.
    """
    left, blocks = max(sum(sizes), POISON_BYTES), []
    for _turn in range(POISON_BLOCKS):
        for size in dict.fromkeys(sizes):
            if size <= left:
                blocks.append(torch.full((size,), POISON, dtype=torch.uint8, device="cuda"))
                left -= size
    del blocks


def changed_in_place(study: ModuleType, inputs: Inputs) -> tuple[str, ...]:
    """The names of the inputs that a call changes. Raises UsageError for what is no tensor."""
    names: tuple[str, ...] = tuple(getattr(study, "in_place", ()))
    for name in names:
        if not isinstance(inputs.get(name), torch.Tensor):
            raise UsageError(
                f"study.py: in_place names '{name}', which is no tensor of inputs()",
                hint=nearest(name, list(tensors_of(inputs))),
            )
    return names


class Calls:
    """Repeated calls of ``run`` on the same inputs."""

    def __init__(self, run: RunFunction, drawn: Inputs, in_place: Sequence[str]) -> None:
        self.run, self.drawn, self.in_place = run, drawn, in_place
        self.inputs, self.buffers = dict(drawn), {}
        for name, value in drawn.items():
            if isinstance(value, torch.Tensor):
                self.inputs[name], self.buffers[name] = guarded(value)
            elif isinstance(value, Empty):
                self.inputs[name] = replace(value, make=partial(self.guarded_output, name))
        self.written: list[tuple[str, torch.Tensor]] = []
        self.touched_first = ""

    def guarded_output(self, name: str, empty: torch.Tensor) -> torch.Tensor:
        """All NaN, inside as well."""
        output, buffer = guarded(empty)
        buffer.fill_(POISON)
        self.written.append((name, buffer))
        return output

    def call(self) -> Outputs:
        """Raises NoResult."""
        outputs = outputs_of(self.run(**self.inputs), self.inputs, self.in_place)
        if why := kept_gradient(self.inputs):
            raise NoResult(why, hint="torch.autograd.grad returns gradients and keeps none")
        return outputs

    def again(self, before: Outputs) -> Outputs:
        """Call again with the inputs that a call changes as they were, and with NaN where the last
        call's outputs stood: its memory is what the next one is likely to be given.
        """
        self.touched_first = self.touched()
        self.clear(before)
        before.tensors.clear()
        self.arrive_late()
        return self.call()

    def clear(self, outputs: Outputs) -> None:
        """NaN in place of outputs; inputs that a call changes are as they were."""
        for name, out in outputs.tensors.items():
            if name in self.in_place:
                out.copy_(self.drawn[name].detach())
            elif is_dense(out) and out.numel():
                in_memory(out).view(torch.uint8).fill_(POISON)

    def replayed(self, before: Outputs, side: Stream) -> Outputs | None:
        """Replay a call out of a CUDA graph, as it is timed: a variant may do other work there.
        Return its outputs; None where no graph can capture it, or it captures nothing.
        """
        self.touched_first = self.touched()
        self.clear(before)
        before.tensors.clear()
        captured_outputs: list[Outputs] = []
        begun = len(self.written)
        try:
            self.graph = captured(lambda: captured_outputs.append(self.call()), side())
            if not nodes(self.graph):
                return None
        except Exception:  # its timing says why
            torch.cuda.synchronize()
            del self.written[begun:]  # nothing has ever filled these
            return None
        self.clear(captured_outputs[0])
        self.graph.replay()
        torch.cuda.synchronize()
        return captured_outputs.pop()

    def arrive_late(self) -> None:
        """NaN in place of the inputs for about a millisecond of the current stream: what launches
        on another one, and does not wait for this one, reads that.
        """
        late = [n for n in self.buffers if kind_of(self.drawn[n].dtype) in ("real", "complex")]
        for name in late:
            self.buffers[name][GUARD_BYTES:-GUARD_BYTES] = POISON
        pause()
        for name in late:
            self.inputs[name].detach().copy_(self.drawn[name].detach())

    def touched(self) -> str:
        """Name the first of the inputs, or of the memory around them, that is not what it was."""
        if self.touched_first:
            return self.touched_first
        for name in self.buffers:
            before, now = self.drawn[name].detach(), self.inputs[name].detach()
            if name not in self.in_place and not same_bits(now, before):
                return f"changes its input '{name}'"
        for name, buffer in (*self.buffers.items(), *self.written):
            for margin in (buffer[:GUARD_BYTES], buffer[-GUARD_BYTES:]):
                if bool((margin != POISON).any()):
                    return f"writes out of bounds of '{name}'"
        return ""


def copied(drawn: Inputs, names: Sequence[str]) -> Inputs:
    """Copy the named inputs, which nobody shall see changed."""
    return {**drawn, **{name: drawn[name].detach().clone() for name in names}}
