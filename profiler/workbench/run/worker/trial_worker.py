"""The process of a trial: ``python -m workbench.run.worker.trial_worker job.json``.

Each variant is called in a process of its own, and one with the study and no variant compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import torch

from workbench.children import adopt
from workbench.errors import WorkbenchError
from workbench.problems.given import Empty, without
from workbench.run.protocol import ErrorText, TrialJob
from workbench.run.worker.checking import Gone, SharedMemory
from workbench.run.worker.device import on_cpu
from workbench.run.worker.event_log import EventLog, describe, in_users_words
from workbench.run.worker.forking_worker import ForkingWorker, make_context
from workbench.run.worker.output import Outputs, RunFunction, tensors, tensors_of
from workbench.run.worker.startup import import_libraries, job_of
from workbench.run.worker.timing.gated import Layout, Revealed, layouts_of, memory_of
from workbench.run.worker.trial_call import CallFails, TrialRun
from workbench.words import Inputs


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
            kept[output(place)] = tensor
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
            results.append(tensors[output(place)])
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


def output(place: int) -> str:
    return f"output {place}"


def main() -> None:
    with job_of(TrialJob, forks=lambda job: True) as (job, journal):
        journal.current(job.called)
        import_libraries(on_cpu=job.on_cpu)
        adopt()
        with on_cpu() if job.on_cpu else nullcontext():
            TrialWorker(job, journal).run_forks(compares=True)


if __name__ == "__main__":
    main()
