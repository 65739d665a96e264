"""Calls of a variant on copies of its inputs that it cannot leave unseen. Runs in the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from workbench.errors import UsageError, nearest
from workbench.run.worker.deviation import same_bits
from workbench.run.worker.output import NoResult, Outputs, kept_gradient, outputs_of
from workbench.run.worker.timing.surroundings import in_memory, is_dense

Run = Callable[..., Any]
GUARD_BYTES = 64 * 1024
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
    """Of the current stream."""
    if torch.cuda.is_available():
        torch.cuda._sleep(LATE_CYCLES)


def can_be_nan(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


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


def changed_in_place(study: ModuleType, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the inputs that a call changes. Raises UsageError for what is no tensor."""
    names: tuple[str, ...] = tuple(getattr(study, "in_place", ()))
    for name in names:
        if not isinstance(inputs.get(name), torch.Tensor):
            raise UsageError(
                f"study.py: in_place names '{name}', which is no tensor of inputs()",
                hint=nearest(name, [n for n, v in inputs.items() if isinstance(v, torch.Tensor)]),
            )
    return names


class Calls:
    """Of ``run``, each on the same inputs."""

    def __init__(self, run: Run, drawn: Mapping[str, Any], in_place: Sequence[str]) -> None:
        self.run, self.drawn, self.in_place = run, drawn, in_place
        self.inputs, self.buffers = dict(drawn), {}
        for name, value in drawn.items():
            if isinstance(value, torch.Tensor):
                self.inputs[name], self.buffers[name] = guarded(value)
        self.touched_first = ""

    def call(self) -> Outputs:
        """Raises NoResult."""
        found = outputs_of(self.run(**self.inputs), self.inputs, self.in_place)
        if why := kept_gradient(self.inputs):
            raise NoResult(why, hint="torch.autograd.grad returns gradients and keeps none")
        return found

    def again(self, before: Outputs) -> Outputs:
        """With the inputs that a call changes as they were, and with NaN where the last call's
        outputs stood: its memory is what the next one is likely to be given.
        """
        self.touched_first = self.touched()
        for name, out in before.tensors.items():
            if name in self.in_place:
                out.copy_(self.drawn[name].detach())
            elif is_dense(out) and out.numel():
                in_memory(out).view(torch.uint8).fill_(POISON)
            del out
        before.tensors.clear()
        self.arrive_late()
        return self.call()

    def arrive_late(self) -> None:
        """NaN in place of the inputs for about a millisecond of the current stream: what launches
        on another one, and does not wait for this one, reads that.
        """
        late = [name for name in self.buffers if can_be_nan(self.drawn[name])]
        for name in late:
            self.buffers[name][GUARD_BYTES:-GUARD_BYTES] = POISON
        pause()
        for name in late:
            self.inputs[name].detach().copy_(self.drawn[name].detach())

    def touched(self) -> str:
        """Which of the inputs, or of the memory around them, is not what it was, in words."""
        if self.touched_first:
            return self.touched_first
        for name, buffer in self.buffers.items():
            given, now = self.drawn[name].detach(), self.inputs[name].detach()
            if name not in self.in_place and not same_bits(now, given):
                return f"changes its input '{name}'"
            for margin in (buffer[:GUARD_BYTES], buffer[-GUARD_BYTES:]):
                if bool((margin != POISON).any()):
                    return f"writes out of bounds of '{name}'"
        return ""


def copied(drawn: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """With copies of those named, which nobody shall see changed."""
    return {**drawn, **{name: drawn[name].detach().clone() for name in names}}
