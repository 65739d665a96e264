"""Which instruction a warp waits at, where the sampled one is another. Pure.

A sample has the address of the next instruction that the warp would issue, so the wait is often
charged to what comes after it:

- ``mbarrier.try_wait`` is ``SYNCS.PHASECHK`` into a predicate and a branch on it; the branch is
  what waits for the predicate. ptxas moves the first try out of the loop, and that copy has the
  line of whatever stood before it: the copy in the loop, where the branch goes, has its own.
- ``cp.async.wait_group`` is ``DEPBAR`` and, where that comes through, a wait of the next.
- ``__syncthreads`` is ``BAR.SYNC.DEFER_BLOCKING``, after which a warp goes on to the next
  instruction that cannot be taken back.
- ``wgmma.fence`` is ``WARPGROUP.ARRIVE``, for which the next ``HGMMA`` waits.
- after ``EXIT`` a warp waits for its stores at the address that follows.

What cannot be told for certain stays where it was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.ncu.instructions import BRANCHES, Instruction

BACK = 64  # instructions that are searched for the one which waits
LOOP_HEAD = 4  # instructions of a loop before its wait
BARRIERS = ("BAR.SYNC", "BAR.RED", "BARRIER.SYNC", "UCGABAR_WAIT")
# Reasons that are sampled behind the instruction which makes a warp wait.
BEHIND = {"barrier": BARRIERS, "warpgroup_arrive": ("WARPGROUP.ARRIVE",)}
WAITING = (*BARRIERS, "DEPBAR", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR", "SYNCS.PHASECHK")
OWN = ("WARPGROUP", "BAR", "BARRIER", "UCGABAR_WAIT", "WARPSYNC")  # wait for barriers themselves


class Waits:
    """Of one function, its instructions in order of their addresses."""

    def __init__(self, code: Sequence[Instruction]) -> None:
        self._code = code
        self._index = {one.pc: index for index, one in enumerate(code)}
        self._entered = {one.target for one in code if one.target is not None}
        self._mbarrier: dict[int, int] = {}
        for index in range(len(code)):
            self._find_mbarrier(index)

    def at(self, pc: int, counter: str) -> int:
        """The address of the instruction that a sample is to be charged to, or its own."""
        index = self._index.get(pc)
        if index is None:
            return pc
        if counter == "drain" and index and self._code[index - 1].is_a("EXIT"):
            return self._code[index - 1].pc
        if counter in BEHIND and (found := self._before(index, BEHIND[counter])) is not None:
            return found
        if counter == "long_scoreboard" and index and self._code[index - 1].is_a("DEPBAR"):
            return self._code[index - 1].pc
        return self._mbarrier.get(pc, pc)

    def is_wait(self, pc: int) -> bool:
        """Whether nothing but a wait is made of it."""
        index = self._index.get(pc)
        return pc in self._mbarrier or (index is not None and self._code[index].is_a(*WAITING))

    def _find_mbarrier(self, index: int) -> None:
        """Note the wait that an instruction is part of as the reader of its predicate."""
        one = self._code[index]
        if one.waits_for_barrier:
            self._mbarrier.setdefault(one.pc, one.pc)
        wait = next((w for p in sorted(one.read) if (w := self._writer(index, p))), None)
        if wait is None or not wait.waits_for_barrier:
            return
        loop = self._in_loop(wait, one.target) if one.target is not None else None
        if loop is not None:
            self._mbarrier[wait.pc] = loop.pc
        self._mbarrier[one.pc] = self._mbarrier.get(wait.pc, wait.pc)

    def _writer(self, index: int, predicate: str) -> Instruction | None:
        """The one that wrote a predicate; None where the code comes together in between."""
        for at in range(index - 1, max(-1, index - 1 - BACK), -1):
            if self._code[at + 1].pc in self._entered:
                return None
            if predicate in self._code[at].written:
                return self._code[at]
        return None

    def _in_loop(self, wait: Instruction, target: int) -> Instruction | None:
        """The same wait where the branch goes to."""
        start = self._index.get(target)
        if start is None:
            return None
        for one in self._code[start : start + LOOP_HEAD]:
            if one.waits_for_barrier and one.operands[1:] == wait.operands[1:]:
                return one
        return None

    def _before(self, index: int, opcodes: Sequence[str]) -> int | None:
        """The last of these that an instruction after it waits for."""
        if self._code[index].is_a(*OWN):
            return None
        for at in range(index - 1, max(-1, index - 1 - BACK), -1):
            one = self._code[at]
            if one.is_a(*opcodes):
                return one.pc
            if one.is_a(*BRANCHES) and not one.guard:
                return None
        return None
