"""What a line of SASS says: NVIDIA's machine code as ``ncu_report`` prints it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

_GUARDED = re.compile(r"(?:@!?(U?P[0-9T]+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;?\s*")
_PREDICATE = re.compile(r"\bU?P\d\b")
_ADDRESS = re.compile(r"\b0x([0-9a-f]+)\b")
BRANCHES = ("BRA", "BRX", "JMP", "JMX", "BREAK", "BSYNC", "RET", "EXIT", "CALL")


@dataclass(frozen=True)
class Instruction:
    """One instruction at ``pc``; ``guard`` is the predicate without which it does nothing, "" for
    none. ``text`` is all of it, with single blanks.
    """

    pc: int
    opcode: str
    operands: tuple[str, ...]
    guard: str = ""
    text: str = ""

    def is_a(self, *opcodes: str) -> bool:
        """Whether its opcode begins with one of these, part by part."""
        return _begins(self.opcode, opcodes)

    @cached_property
    def waits_for_barrier(self) -> bool:
        """An mbarrier's phase: ``mbarrier.try_wait`` and ``test_wait``."""
        return self.is_a("SYNCS.PHASECHK")

    @cached_property
    def written(self) -> frozenset[str]:
        """Predicates that it writes: those of its first two operands, as SASS has it."""
        if self.is_a(*BRANCHES):
            return frozenset()
        return frozenset(o for o in self.operands[:2] if _PREDICATE.fullmatch(o))

    @cached_property
    def read(self) -> frozenset[str]:
        """Predicates that it reads."""
        found = {p for o in self.operands for p in _PREDICATE.findall(o)} - self.written
        return frozenset(found | {self.guard} if self.guard else found)

    @cached_property
    def target(self) -> int | None:
        """Where a branch goes to; None for what is none or goes where a register says."""
        if not self.is_a("BRA", "JMP", "CALL"):
            return None
        found = _ADDRESS.findall(self.operands[-1]) if self.operands else []
        return int(found[-1], 16) if found else None


@cache  # some hundred opcodes are asked for a million times
def _begins(opcode: str, others: tuple[str, ...]) -> bool:
    return any(opcode == o or opcode.startswith(f"{o}.") for o in others)


def instruction(pc: int, sass: str) -> Instruction:
    """From its text; one with no opcode where that is none."""
    text = " ".join(sass.split())
    match = _GUARDED.fullmatch(text)
    if match is None:
        return Instruction(pc, "", (), text=text)
    operands = tuple(o.strip() for o in match[3].split(",")) if match[3] else ()
    return Instruction(pc, match[2], operands, match[1] or "", text)


def instructions(action: Any, pcs: list[int]) -> list[Instruction]:
    """Those of a launch, in order of their addresses."""
    return [instruction(pc, str(action.sass_by_pc(pc) or "")) for pc in sorted(pcs)]
