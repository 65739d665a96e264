"""The process of a trial: ``python -m workbench.run.worker.trial_worker job.json``. It calls a
study's baseline and references once.

So it learns what a problem's files do not say: which tensors there are, which of them are only
written into, whether the reference takes doubles, how large its own error is. Each variant is
called in a process of its own, and one with the study and no variant compares. Where there is no
GPU it is done on the CPU, as far as the code goes there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import torch

from workbench.children import adopt
from workbench.errors import EnvironmentLacks, GateFailed, UsageError, WorkbenchError
from workbench.problems.given import Dotted, Empty, afterwards, larger, without
from workbench.run.protocol import ErrorText, Learned, TrialJob
from workbench.run.worker.checking import Gone, SharedMemory
from workbench.run.worker.correctness import drawn_with
from workbench.run.worker.device import on_cpu
from workbench.run.worker.event_log import EventLog, describe, in_users_words
from workbench.run.worker.forking_worker import ForkingWorker, make_context
from workbench.run.worker.output import (
    FEW,
    Outputs,
    RunFunction,
    copied,
    copies,
    dtype_of,
    elements_in_norm,
    error_of,
    fits,
    is_changed,
    largest,
    refuse_lazy,
    require_judging,
    same_bits,
    size_of,
    tensor_words,
    tensors,
    tensors_of,
    type_name,
    without_values,
    written,
)
from workbench.run.worker.process_settings import load_kept
from workbench.run.worker.startup import import_libraries, job_of
from workbench.run.worker.timing.gated import Layout, Revealed, layouts_of, memory_of
from workbench.run.worker.timing.neighbours import KINDS, PIECE, in_memory, is_dense
from workbench.study.files import readable_text
from workbench.study.front_ends import tuned_in_place
from workbench.words import Inputs

LARGEST_ON_CPU = 1 << 30  # bytes of inputs
REPEATABLE = 0.02  # relative in norm: atomics in half precision stay below it
WORSE = 8.0  # times its usual error, which a reference may have for larger inputs
NO_REFERENCE = "the reference cannot be computed"
IDLE = "returns nothing, and changes none of its inputs"
COMPUTED = "return plain tensors of torch, dense and computed"


class TrialCall(msgspec.Struct, frozen=True):
    """Asks for a call on the inputs that a seed has, those that are ``handed`` over in their place,
    and the ``empty`` only written into. ``anew``: the variant is loaded before.
    """

    seed: int
    anew: bool
    empty: tuple[str, ...]
    handed: Revealed


class InputView(msgspec.Struct, frozen=True):
    """An output that lies in the memory of the input that its layout names."""

    layout: Layout
    offset: int


class Returned(msgspec.Struct, frozen=True, tag=True):
    """Tells what a call returned: the name of its type, the ``keys`` of a dict, and of its tensors
    in order which are views. The memory has the others, and the inputs that the call changed.
    """

    kind: str
    keys: tuple[str, ...]
    views: tuple[InputView | None, ...]
    revealed: Revealed


class Raised(msgspec.Struct, frozen=True, tag=True):
    """``is_ours``: an error of the workbench. ``unsupported``: it says that it does not do this."""

    error: ErrorText
    is_ours: bool
    unsupported: bool = False


class TrialWorker(ForkingWorker):
    """Does one job in the current directory."""

    smaller = "try smaller inputs"
    its_reference = "call the reference alone, on these inputs: it ends its process"

    def __init__(self, job: TrialJob, journal: EventLog) -> None:
        self.job = job
        variants = (job.baseline, *job.references)
        super().__init__(journal, variants, Path.cwd() / "kernels" / job.study)

    # ---- the process that compares -----------------------------------------------------------
    def compare_all(self) -> None:
        assert self.ends
        self.ends.work = f"comparing {self.job.called}"
        self.asked = ""
        self.trial = TrialRun(self.job, self.elsewhere)
        try:
            self.journal.write(self.trial.run())
        except Gone:
            return
        except CallFails as error:  # where no call of a trial is expected to
            raise error.error from None
        for name in self.variants:
            self.ends.end(name)

    def elsewhere(self, name: str) -> RunFunction:
        """``run`` in the variant's process. That of another variant ends: none is asked again."""
        assert self.ends
        if not self.asked:
            self.ends.begin()  # all inputs of calls are drawn
        elif self.asked != name:
            self.ends.end(self.asked)
        self.asked, ends, anew = name, self.ends, True

        def called(**inputs: Any) -> Any:
            nonlocal anew
            empty = tuple(name for name, value in inputs.items() if isinstance(value, Empty))
            handed = ends.memory.put(Outputs(tensors_of(inputs), frozenset()))
            question, anew = TrialCall(self.trial.seed, anew, empty, handed), False
            answer = ends.answer_to(name, question, Returned | Raised)
            if isinstance(answer, Returned):
                return taken(answer, ends.memory, inputs)
            error = answer.error.error()
            raise error if answer.is_ours else CallFails(error, unsupported=answer.unsupported)

        return called

    # ---- the process of a variant ------------------------------------------------------------
    def prepare(self) -> None:
        self.trial = TrialRun(self.job)
        self.drawn: Inputs = {}
        make_context()

    def work(self, variants: Sequence[str]) -> None:
        assert self.ends
        (name,) = variants
        called = self.trial.known(name)
        self.journal.current(called)
        for call in self.ends.asks(name, TrialCall):
            answer: Returned | Raised
            try:
                answer = self.answer(name, call, self.ends.memory)
            except NotImplementedError as error:
                answer = Raised(describe(error), is_ours=False, unsupported=True)
            except Exception as error:
                text = ErrorText.of(in_users_words(error, f"{called} fails"))
                answer = Raised(text, is_ours=isinstance(error, WorkbenchError))
            self.ends.tell(name, answer)

    def answer(self, name: str, call: TrialCall, memory: SharedMemory) -> Returned:
        self.drawn = self.drawn or self.trial.drawn(self.job.shapes[0], call.seed)
        if call.anew:
            self.run = self.trial.load(name)
        inputs = without(self.drawn, [*tensors_of(self.drawn).keys() & {*call.empty}])
        for key, value in memory.get(call.handed).tensors.items():
            inputs[key] = value.requires_grad_().clone() if inputs[key].requires_grad else value
        with torch.no_grad():
            out = self.run(**inputs)
        returned = shown(out, inputs, call.handed, memory)
        torch.cuda.synchronize()  # copied on the stream of the call: no other is waited for
        return returned


def shown(out: Any, inputs: Inputs, before: Revealed, memory: SharedMemory) -> Returned:
    """Put what a call returned where the process that compares finds it."""
    owners = {tensor.untyped_storage().data_ptr(): n for n, tensor in tensors_of(inputs).items()}
    views: list[InputView | None] = []
    kept = {
        layout.name: inputs[layout.name]
        for layout, was in zip(before.layouts, memory.places(before), strict=True)
        if not torch.equal(now := memory_of(inputs[layout.name].detach()), was.to(now.device))
    }
    for place, tensor in enumerate(tensors(out)):
        owner = owners.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None
        if owner is None:
            kept[f"output {place}"] = tensor
            views.append(None)
        else:
            (layout,) = layouts_of(Outputs({owner: tensor}, frozenset()))
            views.append(InputView(layout, int(tensor.storage_offset())))
    is_flat = isinstance(out, dict) and len(tensors_of(out)) == len(out)
    keys = tuple(map(str, out)) if is_flat else ()
    revealed = memory.put(Outputs(kept, frozenset()))
    return Returned(type(out).__name__, keys, tuple(views), revealed)


def taken(returned: Returned, memory: SharedMemory, inputs: Inputs) -> Any:
    """Return what a call returned, as far as tensors go. The inputs are what it left of them."""
    tensors = memory.get(returned.revealed).tensors
    for name in tensors.keys() & inputs.keys():
        inputs[name].data = tensors[name]
    results = []
    for place, view in enumerate(returned.views):
        if view is None:
            results.append(tensors[f"output {place}"])
            continue
        layout, owner = view.layout, inputs[view.layout.name]
        every = torch.empty(0, dtype=torch.uint8, device=owner.device)
        every.set_(owner.untyped_storage())
        typed = every.view(getattr(torch, layout.dtype))
        results.append(typed.as_strided(layout.shape, layout.strides, view.offset))
    match returned.kind:
        case "NoneType":
            return None
        case "Tensor":
            return results[0]
    if returned.keys:
        return dict(zip(returned.keys, results, strict=True))
    return tuple(results) or type(returned.kind, (), {})()


class CallFails(Exception):
    """A call fails in another process, by no error of the workbench: with this ``error``.
    ``unsupported``: it says that it does not do this.
    """

    def __init__(self, error: WorkbenchError, *, unsupported: bool) -> None:
        super().__init__(error)
        self.error, self.unsupported = error, unsupported


class Idle(GateFailed):
    """One that neither returns nor changes anything."""


class TrialRun:
    """Does one job in the current directory. ``elsewhere`` gives the ``run`` of a variant that is
    called in another process, one variant after the other.
    """

    def __init__(
        self, job: TrialJob, elsewhere: Callable[[str], RunFunction] | None = None
    ) -> None:
        self.job, self.elsewhere = job, elsewhere
        self.device = torch.device(job.device)
        self.folder = Path.cwd() / "kernels" / job.study
        self.study = load_kept(self.folder / "study.py", "workbench_study")
        self.failures: dict[str, ErrorText] = {}
        self.bytes: dict[str, float] = {}
        self.largest = self.larger_reference = 0.0
        self.differs = self.rounds = ""
        self.is_exact = True

    def run(self) -> Learned:
        inputs = self.inputs(self.job.shapes[0])
        destinations: tuple[str, ...] = ()
        in_place: tuple[str, ...] = ()
        errors: dict[str, tuple[float, float]] = {}
        idle = ""
        try:
            result = self.called(self.job.baseline, inputs)
        except Idle as nothing:
            name = self.left_alone(inputs, nothing)
            others = {**inputs, name: inputs[name] + 1}  # torch.empty() may have had the result
            try:
                result, inputs = self.called(self.job.baseline, others), others
            except Idle:
                result, idle = inputs[name], f"it {IDLE}"
        if result is not None and not idle:
            destinations, in_place = written(self.load(self.job.baseline), inputs)
            if {*destinations} == {n for n, v in inputs.items() if hasattr(v, "numel")}:
                destinations, in_place = (), destinations  # who reads none of them cannot compute
            inputs = without(inputs, destinations)
            result = self.left_behind(inputs, result, in_place)
            again = self.called(self.job.baseline, inputs)
            again = self.left_behind(inputs, again, in_place)
            self.require_repeatable(result, again, self.job.called)
        expected, refusal = self.expected(inputs)
        require_judging(expected)
        more = len(tensors(result)) - len(tensors(expected))
        clobbered = more == len(in_place) > 0 and result is not None
        if clobbered:  # and the reference leaves these inputs as they are
            result = tuple(tensors(result)[:-more])
        if result is not None:
            *error, self.differs = error_of(result, expected, self.job.called)
            if not self.job.ranges and (self.differs or error[1] > REPEATABLE):
                self.require_repeatable(expected, self.expected(inputs)[0], "the reference")
            if not self.differs:
                errors[self.job.baseline] = error[0], error[1]
        tensor_inputs = tensors_of(inputs)
        own_check = clobbered or bool(idle) or hasattr(self.study, "accepts")
        larger = None if own_check else self.larger(inputs, expected, errors)
        seen = result
        for name in self.job.references:
            out = self.called(name, inputs)
            if out is not None:
                seen = out if seen is None else seen
                left = len(tensors(expected)) - len(tensors(out)) == len(in_place)
                right = tuple(tensors(expected)[: len(tensors(out))]) if left else expected
                errors.update(self.compared(name, out, right))
        self.add(self.job.shapes[0], inputs, expected)
        checked = result is not None and hasattr(self.study, "accepts")
        refused = self.refused(inputs, result) if checked else ""
        if clobbered:
            changed = in_place[0]
            refused = f"it changes its input {changed}, which the reference does not"
        refused = idle or refused
        for shape in self.job.shapes[1:]:
            others = without(self.inputs(shape), destinations)
            self.add(shape, others, self.study.plain(others))
        outputs = tensors(expected if seen is None else seen)
        return Learned(
            inputs={n: tensor_words(value) for n, value in tensor_inputs.items()},
            outputs=tuple(map(tensor_words, outputs)),
            differs=self.differs,
            destinations=destinations,
            in_place=in_place,
            exact=not refusal,
            refusal=refusal,
            rounds=self.rounds,
            dtype=dtype_of(tensor_inputs or dict(enumerate(outputs))),
            bytes=self.bytes,
            largest=self.largest,
            errors=errors,
            larger=larger,
            larger_reference=self.larger_reference,
            constant=self.is_constant(destinations, expected),
            few=any(elements_in_norm(t) < FEW for t in tensors(expected)),
            structured=self.is_structured(inputs, expected),
            accepted=checked and not refused,
            refused=refused,
            failures=self.failures,
        )

    def inputs(self, shape: str) -> Inputs:
        """Raises UsageError for what cannot be the inputs of a call."""
        if self.device.type == "cpu":
            self.require_small(shape)
        inputs = self.drawn(shape)
        if not inputs:
            hint = "inputs() returns a dict or a tuple of tensors"
            raise UsageError("there are no inputs", hint=hint)
        for name, value in tensors_of(inputs).items():
            if value.device.type != self.device.type:
                raise UsageError(
                    f"the input '{name}' is on the {value.device.type.upper()}, and a kernel "
                    "reads the GPU's memory",
                    hint="make it with device='cuda'",
                )
            if not is_dense(value):
                raise UsageError(
                    f"the input '{name}' has gaps: sizes {list(value.shape)} with strides "
                    f"{list(value.stride())}",
                    hint="give the whole tensor as the input, and take the slice in the function",
                )
        return inputs

    def drawn(self, shape: str, seed: int | None = None) -> Inputs:
        self.seed = secrets.randbits(32) if seed is None else seed
        try:
            return drawn_with(self.study, self.study.shapes[shape], "", self.seed)
        except Exception as error:
            raise in_users_words(error, "the inputs cannot be made") from error

    def require_small(self, shape: str) -> None:
        """Raises EnvironmentLacks for what would fill a computer; nothing is allocated."""
        size = 0
        for symbolic in (False, True):
            with suppress(Exception), without_values(symbolic=symbolic):
                size = sum(map(size_of, tensors(tuple(self.drawn(shape).values()))))
                break
        if size > LARGEST_ON_CPU:  # what is unknown ahead is tried
            raise EnvironmentLacks(
                f"the inputs have {size / 1e9:.1f} GB, too much to be checked on the CPU",
                hint="try it where there is a GPU",
            )

    def require_repeatable(self, first: Any, second: Any, called: str) -> None:
        """Raises GateFailed where two calls with the same inputs differ by more than rounding."""
        _, relative, differs = error_of(first, second, called)
        if differs or relative > REPEATABLE:
            by = f": {differs}" if differs else f" by {relative:.2g} of the result"
            for path in sorted(self.folder.rglob("*.py")):
                if kernel := tuned_in_place(readable_text(path)):
                    raise GateFailed(
                        f"two calls of {called} differ{by}; {kernel} is autotuned, adds to its "
                        "output by atomics and resets nothing: each configuration adds to it",
                        hint=f'reset_to_zero=["OUTPUT"] in triton.autotune of {kernel}',
                    )
            raise GateFailed(
                f"{called} is random, or reads memory that it does not write: two calls with the "
                f"same inputs differ{by}",
                hint="give it the random numbers as an input, or switch them off (such as p=0); "
                "check the types of the inputs and the sizes",
            )

    def compared(self, name: str, out: Any, expected: Any) -> dict[str, tuple[float, float]]:
        """Compute a reference's errors; note one that has none, or does other work."""
        try:
            absolute, relative, differs = error_of(out, expected, name)
        except GateFailed as refused:
            if not self.job.ranges:
                raise
            self.failures[name] = describe(refused)
            return {}
        if not differs and (relative <= REPEATABLE or not self.job.ranges):
            return {name: (absolute, relative)}
        why = "computes something else" if self.job.ranges else f"is wrong: {differs}"
        self.failures[name] = describe(GateFailed(f"{name} {why}", hint="it is not compared"))
        return {}

    def larger(
        self, inputs: Inputs, expected: Any, errors: Mapping[str, tuple[float, float]]
    ) -> tuple[float, float] | None:
        """The errors of the baseline for larger inputs; None where it has none on either, or where
        the reference in its own precision does not bear them.
        """
        error = errors.get(self.job.baseline)
        if error is None or self.job.ranges or not self.has_room(inputs):
            return None
        if (borne := self.borne(more := larger(inputs), inputs, expected)) is None:
            return None
        right, self.larger_reference = borne
        out = self.called(self.job.baseline, more)
        out = self.left_behind(more, out, self.study.in_place)
        absolute, relative, differs = error_of(out, right, self.job.called)
        if differs:
            self.differs = f"for larger inputs {differs}"
            return None
        return absolute, relative

    def borne(self, more: Inputs, inputs: Inputs, expected: Any) -> tuple[Any, float] | None:
        """Compute what is right for changed inputs, and the error of the reference in its own
        precision; None where it does not bear them.
        """
        try:
            right = self.reference(more, exact=self.is_exact)
            plain, usual = self.reference(more), self.reference(inputs)
            finite = all(bool(torch.isfinite(t).all()) for t in tensors((right, plain)))
            error, before = error_of(plain, right, "")[1], error_of(usual, expected, "")[1]
        except Exception:
            return None
        bears = error <= WORSE * max(before, torch.finfo(torch.float32).eps)
        return (right, error) if finite and bears else None

    def is_structured(self, inputs: Inputs, expected: Any) -> bool:
        """Whether the reference does not bear each piece of its inputs times another factor."""
        if not self.has_room(inputs):
            return False
        more = dict(inputs)
        for name, value in tensors_of(inputs).items():
            if value.dtype in KINDS and value.numel():
                piece, flat = PIECE // value.itemsize, in_memory(value.detach())
                by = 1 - torch.rand(-(-len(flat) // piece), device=flat.device) / 4
                more[name] = torch.empty_like(value)
                in_memory(more[name]).copy_(flat * by.repeat_interleave(piece)[: len(flat)])
        return self.borne(more, inputs, expected) is None

    def has_room(self, inputs: Inputs) -> bool:
        """Whether the GPU's memory holds the doubles of the inputs several times more."""
        size = sum(8 * value.numel() for value in inputs.values() if hasattr(value, "numel"))
        return self.device.type == "cpu" or torch.cuda.mem_get_info()[0] > 6 * size

    def is_constant(self, destinations: tuple[str, ...], expected: Any) -> bool:
        """Whether other random inputs have the same result."""
        others = without(self.inputs(self.job.shapes[0]), destinations)
        again = self.reference(others, exact=self.is_exact)
        pairs = list(zip(tensors(expected), tensors(again), strict=False))
        return all(a.shape == b.shape and same_bits(a, b) for a, b in pairs) and any(
            a.numel() for a, _ in pairs
        )

    def rounds_to(self, inputs: Inputs, exact: Any) -> str:
        """The type that the reference rounds its doubles to by itself; "" for none."""
        floats = [t for t in tensors(exact) if t.is_floating_point() and t.numel()]
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            if not floats or not all(fits(t, dtype) for t in floats):
                continue
            between = {
                n: v.double() * (1 + 1e-9 * torch.rand_like(v, dtype=torch.float64))
                if isinstance(v, torch.Tensor) and v.is_floating_point()
                else v
                for n, v in inputs.items()
            }
            wide = [t for t in tensors(self.study.exact(between)) if t.is_floating_point()]
            return type_name(dtype) if all(fits(t, dtype) for t in wide) else ""
        return ""

    def reference(self, inputs: Inputs, *, exact: bool = False) -> Any:
        """The reference's result, in memory that its next call does not write."""
        return copied((self.study.exact if exact else self.study.plain)(inputs))

    def expected(self, inputs: Inputs) -> tuple[Any, str]:
        """Compute the result in double precision, or say why the reference cannot."""
        try:
            exact = self.reference(inputs, exact=True)
            self.rounds = self.rounds_to(inputs, exact)
            if not self.rounds:
                return exact, ""
            self.is_exact = False
            return self.reference(inputs), f"it rounds its result to {self.rounds}"
        except WorkbenchError:
            raise
        except Exception as error:
            refusal = f"it takes no float64: {describe(error).message}"
        self.is_exact = False
        try:
            return self.reference(inputs), refusal
        except TypeError as error:
            named = getattr(self.study, "_versus", None)
            if not isinstance(named, Dotted):
                raise in_users_words(error, NO_REFERENCE) from error
            raise UsageError(
                f"{named.name} takes no call with {', '.join(inputs)}: {error}",
                hint=f"--vs may name a call with arguments: --vs '{named.name}(x, ...)'",
            ) from error
        except Exception as error:
            raise in_users_words(error, NO_REFERENCE) from error

    def refused(self, inputs: Inputs, out: Any) -> str:
        """Why the study's own check refuses an output, "" where it does not."""
        try:
            return str(self.study.accepts(inputs, out))
        except Exception as error:
            raise in_users_words(error, "its own check fails") from error

    def called(self, name: str, inputs: Inputs) -> Any:
        """Call a variant on copies of the inputs, and copy the result: one that replays its own
        graph writes there again. Of one that returns nothing these are the inputs that it changes.
        None where it cannot be called.

        Raises what is wrong with the baseline, but on a machine without a GPU, where it may need
        one; and Idle.
        """
        copied_inputs = copies(inputs)
        try:
            with torch.no_grad():
                out = copied(self.load(name)(**copied_inputs))
            if self.device.type == "cuda":
                torch.cuda.synchronize()
        except NotImplementedError as error:
            self.failures[name] = describe(error)
            return None
        except CallFails as call:
            is_usual = self.device.type == "cuda" and not call.unsupported
            return self.fails(name, call.error, is_fatal=is_usual)
        except Exception as error:
            text = in_users_words(error, f"{self.known(name)} fails")
            is_ours = isinstance(error, WorkbenchError) and not isinstance(error, EnvironmentLacks)
            return self.fails(name, text, is_fatal=self.device.type == "cuda" or is_ours)
        if out is not None:
            return out
        out = tuple(copied_inputs[n] for n in inputs if is_changed(copied_inputs[n], inputs[n]))
        if not out:
            raise Idle(
                f"{self.known(name)} {IDLE}",
                hint="return the tensor that it computes, or write it into an input",
            )
        return out

    def fails(self, name: str, error: WorkbenchError, *, is_fatal: bool) -> None:
        """Note why a variant cannot be called. Raises one of the baseline that ``is_fatal``."""
        if is_fatal and name == self.job.baseline:
            raise error
        self.failures[name] = describe(error)

    def left_alone(self, inputs: Inputs, idle: Idle) -> str:
        """Name the input that the result of one that did nothing belongs in: the last that is as
        large as the reference's. Raises ``idle`` where there is none.
        """
        if not self.job.references:
            raise idle
        sizes = {expected.shape for expected in tensors(self.expected(inputs)[0])}
        alike = [n for n, v in tensors_of(inputs).items() if v.shape in sizes]
        if not alike:
            raise idle
        return alike[-1]

    def left_behind(self, inputs: Inputs, out: Any, changed: tuple[str, ...]) -> Any:
        """All outputs of the baseline, those in its inputs among them; the study's reference, where
        it is the baseline itself, gives the same from now on.
        """
        vars(self.study)["in_place"] = changed
        if not changed:
            return out
        copied_inputs = copies(inputs)
        with torch.no_grad():
            return afterwards(copied_inputs, self.load(self.job.baseline)(**copied_inputs), changed)

    def known(self, name: str) -> str:
        return self.job.called if name == self.job.baseline else name

    def load(self, name: str) -> RunFunction:
        """The variant's ``run``. It raises GateFailed where a tensor that it returns, or was given,
        computes when it is looked at.
        """
        if self.elsewhere:
            return self.elsewhere(name)
        run: RunFunction = load_kept(self.folder / f"{name}.py", f"workbench_tried_{name}").run

        def called(**inputs: Any) -> Any:
            out = run(**inputs)
            for tensor in tensors((out, inputs)):
                if why := refuse_lazy(tensor):
                    raise GateFailed(f"{self.known(name)} returned {why}", hint=COMPUTED)
            return out

        return called

    def add(self, shape: str, inputs: Inputs, expected: Any) -> None:
        """Note what a call at a shape must move. With indices among the inputs not all need be
        read, so these are not counted.
        """
        tensor_inputs = tensors_of(inputs).values()
        is_mixed = len({value.is_floating_point() for value in tensor_inputs}) > 1
        # The result has the type of the inputs, if it is that large.
        kind = next((v.dtype for v in tensor_inputs if v.is_floating_point()), None)
        made = [t.to(kind) if kind else t for t in tensors(expected)]
        size = sum(map(size_of, made)) + (0 if is_mixed else sum(map(size_of, tensor_inputs)))
        self.bytes[repr(self.study.shapes[shape])] = float(size)
        self.largest = max([self.largest, *map(largest, tensors(expected))])


def main() -> None:
    with job_of(TrialJob) as (job, journal):
        journal.current(job.called)
        import_libraries(on_cpu=job.on_cpu)
        adopt()
        with on_cpu() if job.on_cpu else nullcontext():
            TrialWorker(job, journal).run_forks(compares=True)


if __name__ == "__main__":
    main()
