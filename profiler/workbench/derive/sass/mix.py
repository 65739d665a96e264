"""Which kinds of instructions a variant executed, and how long warps waited at them. Pure.

Classes are those of the pipes that execute an instruction, by its opcode; the opcodes are those of
the CUDA Binary Utilities' instruction set reference, Volta to Blackwell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from workbench.derive.sass.listing import Costed

OTHER = "other"
CLASSES: Mapping[str, tuple[str, ...]] = {
    "tensor": (
        *("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA"),
        *("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA", "UTCMXQMMA"),
    ),
    "FP32": (
        *("FADD", "FFMA", "FMUL", "FMNMX", "FMNMX3", "FSEL", "FSET", "FSETP", "FCHK", "FSWZADD"),
        *("FADD2", "FFMA2", "FMUL2", "FADD32I", "FFMA32I", "FMUL32I", "FHFMA", "FHADD"),
    ),
    "FP16": (
        *("HADD2", "HFMA2", "HMUL2", "HMNMX2", "HSET2", "HSETP2", "HADD2_32I", "HFMA2_32I"),
        *("HMUL2_32I",),
    ),
    "FP64": ("DADD", "DFMA", "DMUL", "DSETP", "DMNMX"),
    "special functions": ("MUFU",),
    "conversions": (
        *("F2F", "F2FP", "F2I", "F2IP", "I2F", "I2FP", "I2I", "I2IP", "FRND", "F2F16"),
    ),
    "integer": (
        *("IADD", "IADD3", "IADD32I", "IADD64", "IMAD", "IMUL", "IMUL32I", "IABS", "IDP", "IDP4A"),
        *("LEA", "LOP", "LOP3", "LOP32I", "SHF", "SHL", "SHR", "ISETP", "IMNMX", "VIMNMX"),
        *("VIMNMX3", "VIADD", "VIADDMNMX", "ISCADD", "FLO", "POPC", "BREV", "BMSK", "SGXT"),
        *("ISCADD32I", "VHMNMX", "VABSDIFF", "VABSDIFF4", "IMMAX"),
    ),
    "moves": (
        *("MOV", "MOV32I", "MOVM", "PRMT", "SEL", "CS2R", "S2R", "R2P", "P2R", "PLOP3", "PSETP"),
        *("LEPC", "GETLMEMBASE", "SETLMEMBASE", "R2B", "B2R", "CSMTEST"),
    ),
    "uniform": (),  # by their first letter
    "constants": ("LDC", "LDCU", "ULDC"),
    "global memory": (
        *("LD", "LDG", "ST", "STG", "ATOM", "ATOMG", "RED", "REDG", "REDAS", "CCTL", "CCTLL"),
        *("ERRBAR", "QSPC", "LDGMC"),
    ),
    "asynchronous copies": (
        *("LDGSTS", "UBLKCP", "UBLKPF", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF"),
        *("UTMACCTL", "UTMACMDFLUSH", "UTMAREDG", "LDGDEPBAR"),
    ),
    "shared memory": ("LDS", "STS", "LDSM", "STSM", "ATOMS", "STAS"),
    "tensor memory": ("LDT", "LDTM", "STT", "STTM", "UTCCP", "UTCSHIFT", "UTCATOMSWS"),
    "local memory": ("LDL", "STL"),
    "textures": ("TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "SULD", "SUST", "SUATOM", "SURED"),
    "between lanes": ("SHFL", "VOTE", "VOTEU", "MATCH", "REDUX", "CREDUX", "ELECT", "R2UR"),
    "synchronisation": (
        *("BAR", "BARRIER", "SYNCS", "DEPBAR", "MEMBAR", "FENCE", "WARPSYNC", "WARPGROUP"),
        *("ARRIVES", "UCGABAR_WAIT", "UCGABAR_ARV", "UCGABAR_GET", "UCGABAR_SET", "ACQBULK"),
        *("PREEXIT", "NANOSLEEP", "UTCBAR", "CGAERRBAR", "UTMACMDFLUSH", "USETMAXREG"),
        *("WARPGROUPSET", "ACQSHMINIT", "ENDCOLLECTIVE"),
    ),
    "control": (
        *("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "EXIT", "BSSY", "BSYNC"),
        *("BREAK", "BMOV", "KILL", "BPT", "RPCMOV", "RTT", "YIELD", "WARPEXIT", "BRA_CONV", "NOP"),
        *("PMTRIG", "VOTE_VTG", "BSYNCR"),
    ),
}
_CLASS_OF = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes}


def class_of(opcode: str) -> str:
    """Of an opcode with its modifiers, as ``IMAD.MOV.U32``."""
    base = opcode.partition(".")[0]
    if base in _CLASS_OF:
        return _CLASS_OF[base]
    return "uniform" if base.startswith(("U", "S2UR", "CS2UR")) else OTHER


@dataclass(frozen=True)
class Amount:
    """Of some instructions: how many stand in the code (``static``), how often warps ``executed``
    them, and how long they waited there; None is not collected.
    """

    static: int = 0
    executed: float | None = None
    share: float | None = None
    microseconds: float | None = None


def amount(instructions: Iterable[Costed]) -> Amount:
    """The sum; None where some part was not collected."""
    known = list(instructions)
    return Amount(
        static=len(known),
        executed=_sum(one.executed for one in known),
        share=_sum(one.share for one in known),
        microseconds=_sum(one.microseconds for one in known),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


@dataclass(frozen=True)
class Mixed:
    """A class or an opcode on both sides."""

    name: str
    before: Amount
    after: Amount

    @property
    def change(self) -> float | None:
        """Of the executions."""
        if self.before.executed is None or self.after.executed is None:
            return None
        return self.after.executed - self.before.executed

    @property
    def wait(self) -> float:
        """The longer of the stall times, in microseconds, or in shares where those are unknown."""
        sides = (self.before, self.after)
        if all(side.microseconds is not None for side in sides):
            return max(side.microseconds or 0.0 for side in sides)
        return max(side.share or 0.0 for side in sides)


def by_class(before: Iterable[Costed], after: Iterable[Costed]) -> list[Mixed]:
    """Every class that either side has, the one with the largest change of executions first."""
    return _mixed(before, after, lambda one: class_of(one.parsed.opcode))


def by_opcode(before: Iterable[Costed], after: Iterable[Costed]) -> list[Mixed]:
    """The same by opcode, without its modifiers but for the first: ``IMAD.MOV``, ``LDG.E``."""
    return _mixed(before, after, lambda one: ".".join(one.parsed.opcode.split(".")[:2]))


def _mixed(
    before: Iterable[Costed], after: Iterable[Costed], name: Callable[[Costed], str]
) -> list[Mixed]:
    sides = [_grouped(side, name) for side in (before, after)]
    found = [
        Mixed(key, amount(sides[0].get(key, ())), amount(sides[1].get(key, ())))
        for key in dict.fromkeys([*sides[0], *sides[1]])
    ]
    return sorted(found, key=lambda one: (-abs(one.change or 0.0), -one.wait, one.name))


def _grouped(
    instructions: Iterable[Costed], name: Callable[[Costed], str]
) -> dict[str, list[Costed]]:
    found: dict[str, list[Costed]] = {}
    for one in instructions:
        found.setdefault(name(one), []).append(one)
    return found
