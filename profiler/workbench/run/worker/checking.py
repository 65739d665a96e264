"""The two ends of a check: the process of a variant makes calls and shows what they give, and one
with the study and no variant compares that. All that the first may say are these messages, and the
bytes of its outputs in memory that both share.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from ctypes import addressof, c_char
from itertools import accumulate
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch

from workbench.errors import ToolFailed
from workbench.run.protocol import WAITING
from workbench.run.worker.correctness import Caller, CallsMade
from workbench.run.worker.output import NoResult, Outputs
from workbench.run.worker.timing.gated import Revealed, layouts_of, memory_of, shown_in
from workbench.run.worker.timing.neighbours import is_dense
from workbench.words import Inputs

MOST_TOLD = 1 << 20  # bytes of a message
APART = 256  # bytes, of which each output begins at a multiple
LEAST_PINNED = 1 << 24
PARTS = (2, 8, 64)  # of the machine's memory, of which the first that can be had is shared
# Of the GPU's memory, above which a process gives back what it does not use: the other needs it.
KEPT_MEMORY = 1 / 16
NOBODY_ASKS = 75  # a variant's process ends so where the one that compares has ended
MOST_WORK = 1 << 10  # bytes of what it was at


class Draw(msgspec.Struct, frozen=True):
    """Asks for calls at a shape on the inputs of a kind and a seed; those that are ``handed`` over
    lie in the memory. ``alone``: for one call, and no more.
    """

    shape: str
    kind: str
    seed: int
    alone: bool
    handed: Revealed | None = None


class CallsRefused(msgspec.Struct, frozen=True, tag=True):
    """Why calls have no result; ``unsupported``: the variant says that it does not do this."""

    why: str
    hint: str
    unsupported: bool


class Showing(msgspec.Struct, frozen=True, tag=True):
    """The outputs of a call, whose bytes lie in the memory until they are taken."""

    revealed: Revealed


T = TypeVar("T")


class SharedMemory:
    """Make it before the processes that share it are forked. What nobody has written takes none."""

    def __init__(self) -> None:
        pages = os.sysconf("SC_PHYS_PAGES")
        for part in PARTS:
            with suppress(OSError):  # a machine may promise no more than it has
                self.memory = mmap.mmap(-1, pages // part * mmap.PAGESIZE)
                break
        self.pinned = 0

    def put(self, outputs: Outputs) -> Revealed:
        """Raises NoResult where they are too large."""
        in_order = torch.contiguous_format  # contiguous() leaves gaps in what has no elements
        dense = {
            name: tensor if is_dense(tensor) else tensor.clone(memory_format=in_order)
            for name, tensor in outputs.tensors.items()
        }
        told = Revealed(layouts_of(Outputs(dense, outputs.counted)), tuple(outputs.counted))
        for out, place in zip(dense.values(), self.places(told), strict=True):
            place.copy_(memory_of(out.detach()))
        return told

    def get(self, told: Revealed) -> Outputs:
        """A copy of what was put there. Raises what is wrong with a layout."""
        return shown_in(told, self.places(told))

    def places(self, told: Revealed) -> list[torch.Tensor]:
        sizes = [
            math.prod(layout.shape) * int(getattr(torch, layout.dtype).itemsize)
            for layout in told.layouts
        ]
        ends = [*accumulate((-(-size // APART) * APART for size in sizes), initial=0)]
        if min(sizes, default=0) < 0 or ends[-1] > len(self.memory):
            raise NoResult(f"its outputs have {ends[-1] / 1e9:.0f} GB, more than memory holds")
        self.pin(ends[-1])
        every = torch.frombuffer(self.memory, dtype=torch.uint8, count=max(ends[-1], 1))
        return [every[end : end + size] for end, size in zip(ends, sizes, strict=False)]

    def pin(self, size: int) -> None:
        """The GPU copies several times as fast then; where it is refused, it copies as it can."""
        if size <= max(self.pinned, LEAST_PINNED) or not torch.cuda.is_initialized():
            return
        from cuda.bindings import driver

        address = addressof(c_char.from_buffer(self.memory))
        if self.pinned:
            driver.cuMemHostUnregister(address)
        size = min(1 << (size - 1).bit_length(), len(self.memory))
        (status,) = driver.cuMemHostRegister(address, size, 0)
        self.pinned = 0 if int(status) else size


def give_back_memory() -> None:
    if (held := torch.cuda.memory_reserved()) and held > KEPT_MEMORY * torch.cuda.mem_get_info()[1]:
        torch.cuda.empty_cache()


class CheckPipes:
    """Both ends for each variant. Each process closes those that are not its own, before it runs
    any code of a variant.
    """

    def __init__(self, variants: Iterable[str]) -> None:
        self.memory = SharedMemory()
        self._waiting = Path.cwd() / WAITING
        self._work = RawArray(c_char, MOST_WORK)
        self.work = "loading study.py and the primary reference"
        self.askers: dict[str, Connection] = {}
        self.callers: dict[str, Connection] = {}
        for name in variants:
            self.askers[name], self.callers[name] = Pipe()

    def keep(self, ends: dict[str, Connection], name: str | None = None) -> None:
        """Close all but these, or but the one of a variant."""
        for every in (self.askers, self.callers):
            for variant, end in every.items():
                if every is not ends or (name is not None and variant != name):
                    end.close()

    @property
    def work(self) -> str:
        """Return what the process that compares is at, for whoever tells how it ended."""
        return self._work.value.decode("utf-8", "replace")

    @work.setter
    def work(self, work: str) -> None:
        self._work.value = work.encode("utf-8", "replace")[: MOST_WORK - 1]

    # ---- the process of a variant ------------------------------------------------------------
    def asks(self, name: str, kind: type[T]) -> Iterator[T]:
        """What is asked for, until nothing is any more."""
        while told := self.heard(name):
            yield msgspec.json.decode(told, type=kind)

    def heard(self, name: str) -> bytes:
        with or_ended():
            return self.callers[name].recv_bytes()

    def tell(self, name: str, message: msgspec.Struct) -> None:
        told = msgspec.json.encode(message)
        with or_ended():
            self.callers[name].send_bytes(told)

    def answer(self, name: str, draw: Draw, calls: Caller) -> None:
        def show(outputs: Outputs) -> None:
            told = self.memory.put(outputs)
            self.tell(name, Showing(told))
            if not self.heard(name):  # it could not be taken, so that the check has failed
                os._exit(0)

        answer: CallsRefused | CallsMade
        handed: Inputs = self.memory.get(draw.handed).tensors if draw.handed else {}
        try:
            answer = calls(draw.kind, draw.seed, handed, draw.alone, show)
        except NoResult as error:
            answer = CallsRefused(error.message, error.hint, unsupported=False)
        except NotImplementedError as error:
            answer = CallsRefused(str(error), "", unsupported=True)
        give_back_memory()
        self.tell(name, answer)

    # ---- the process that compares -----------------------------------------------------------
    def begin(self) -> None:
        for pipe in self.askers.values():
            pipe.send_bytes(b"begin")

    def asked(
        self,
        name: str,
        shape: str,
        kind: str,
        seed: int,
        handed: Inputs,
        alone: bool,
        take: Callable[..., Any],
    ) -> CallsMade:
        """Let a variant's process make the calls, as ``make_calls`` does. Raises Gone."""
        pipe = self.askers[name]
        give_back_memory()
        contents = self.memory.put(Outputs(dict(handed), frozenset())) if handed else None
        with self.waiting():
            pipe.send_bytes(msgspec.json.encode(Draw(shape, kind, seed, alone, contents)))
            while isinstance(answer := received(pipe, Showing | CallsMade | CallsRefused), Showing):
                try:
                    take(self.memory.get(answer.revealed))
                except Exception:
                    self.end(name)  # what it would show next is nobody's answer
                    raise
                pipe.send_bytes(b"taken")
        if isinstance(answer, CallsMade):
            return answer
        if answer.unsupported:
            raise NotImplementedError(answer.why)
        raise NoResult(answer.why, hint=answer.hint)

    def answer_to(self, name: str, question: msgspec.Struct, kind: Any) -> Any:
        """Return the answer, of a ``kind``, of a variant's process to one question. Raises Gone."""
        with self.waiting():
            self.askers[name].send_bytes(msgspec.json.encode(question))
            return received(self.askers[name], kind)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Tell the command that a variant's process is waited for. Raises Gone where it ends."""
        self._waiting.touch()
        try:
            yield
        except (EOFError, ConnectionError):
            raise Gone from None
        finally:
            self._waiting.unlink(missing_ok=True)

    def end(self, name: str) -> None:
        """Ask a variant's process for nothing more."""
        with suppress(OSError):
            self.askers[name].send_bytes(b"")


@contextmanager
def or_ended() -> Iterator[None]:
    """End the process of a variant where nobody asks any more, of which others tell."""
    try:
        yield
    except (EOFError, ConnectionError):
        os._exit(NOBODY_ASKS)


class Gone(Exception):
    """The process of the variant has ended, and others tell how."""


def received(pipe: Connection, kind: Any) -> Any:
    try:
        return msgspec.json.decode(pipe.recv_bytes(MOST_TOLD), type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise ToolFailed("its process does not say what its calls gave") from None
