"""The instructions of a launch with what was counted at each."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from workbench.ncu.catalog import STALL_PREFIX
from workbench.ncu.line_table import LineTable
from workbench.ncu.places import Instruction, Place, Places
from workbench.ncu.reader import metric_names

INSTRUCTIONS = "instructions"
LINE_COUNTERS = {
    INSTRUCTIONS: "inst_executed",
    "excess_global_sectors": "derived__memory_l2_theoretical_sectors_global_excessive",
    "excess_shared_wavefronts": "derived__memory_l1_wavefronts_shared_excessive",
}


@dataclass(frozen=True)
class Counted:
    """Counter to address and value, without the zeros; ``places`` says where each belongs."""

    by_pc: Mapping[str, Sequence[tuple[int, float]]]
    places: Places


def counted(action: Any, tables: Sequence[LineTable] = ()) -> Counted:
    """The counters of ``LINE_COUNTERS`` and the stall reasons that a launch has by instruction."""
    metrics = {
        counter: metric
        for counter, name in {**stall_metrics(action), **LINE_COUNTERS}.items()
        if (metric := action.metric_by_name(name)) is not None
        and metric.has_correlation_ids()
        and metric.value()
    }
    by_pc = {counter: _by_pc(metric) for counter, metric in metrics.items()}
    return Counted(by_pc, Places(action, _addresses(action, by_pc), tables))


@cache  # of over a thousand metrics
def stall_metrics(action: Any) -> dict[str, str]:
    """Stall reason to the metric that counts its samples."""
    return {
        name.removeprefix(STALL_PREFIX): name
        for name in metric_names(action)
        if name.startswith(STALL_PREFIX) and not name.endswith("_not_issued")
    }


def _by_pc(metric: Any) -> list[tuple[int, float]]:
    """Address and value, without the zeros: most instructions have none."""
    ids = metric.correlation_ids()
    values = enumerate(map(metric.as_double, range(metric.num_instances())))
    return [(ids.as_uint64(i), value) for i, value in values if value]


def _addresses(action: Any, by_pc: Mapping[str, Sequence[tuple[int, float]]]) -> set[int]:
    """List all instructions if their executions were counted, else those with a count."""
    metric = action.metric_by_name(LINE_COUNTERS[INSTRUCTIONS])
    if metric is None or not metric.has_correlation_ids():
        return {pc for found in by_pc.values() for pc, _ in found}
    ids = metric.correlation_ids()
    return {ids.as_uint64(i) for i in range(metric.num_instances())}


_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


@dataclass(frozen=True)
class Code:
    """One launch, column by column, in the order of the addresses.

    ``addresses`` are bytes from the first, which is at ``first`` in the report, and so are the
    targets of branches. ``places`` are file and line that an instruction is charged to, as
    ``Places`` has it. ``executed`` counts warps; None is not collected. ``samples`` is stall reason
    to index in these columns to its samples, each at the instruction that waits: by line they add
    up to those of ``Capture.lines``.
    """

    first: int
    addresses: tuple[int, ...]
    sass: tuple[str, ...]
    places: tuple[Place, ...]
    executed: tuple[float, ...] | None
    samples: Mapping[str, Mapping[int, float]]


def read_code(counters: Counted) -> Code | None:
    """None where the report has no disassembly of the launch."""
    code = counters.places.code
    if not any(instruction.opcode for instruction in code):
        return None
    pcs = [instruction.pc for instruction in code]
    executed = dict(counters.by_pc.get(INSTRUCTIONS, ()))
    samples: dict[str, dict[int, float]] = {}
    for reason, counts in counters.by_pc.items():
        if reason in LINE_COUNTERS:
            continue
        mine: dict[int, float] = defaultdict(float)
        for pc, count in counts:
            # One behind the last EXIT is where a warp waits for its stores: it is the EXIT's.
            mine[max(0, bisect_right(pcs, counters.places.waiting(pc, reason)) - 1)] += count
        samples[reason] = dict(sorted(mine.items()))
    charged = {n for counts in samples.values() for n in counts}
    return Code(
        first=code[0].pc,
        addresses=tuple(instruction.pc - code[0].pc for instruction in code),
        sass=tuple(_relative(instruction, code[0].pc, code[-1].pc) for instruction in code),
        places=tuple(
            _place(counters.places, instruction.pc, n in charged)
            for n, instruction in enumerate(code)
        ),
        executed=tuple(executed.get(instruction.pc, 0.0) for instruction in code)
        if executed
        else None,
        samples=samples,
    )


def _place(places: Places, pc: int, charged: bool) -> Place:
    """Find where its samples belong; without any, where its executions do."""
    return places.itself(pc) if charged else places.of(pc, INSTRUCTIONS)


def _relative(instruction: Instruction, first: int, last: int) -> str:
    """Replace each address in the function, which differs by process, by bytes from the first."""

    def moved(match: re.Match[str]) -> str:
        address = int(match[0], 16)
        return f"{address - first:#x}" if first <= address <= last else match[0]

    return _ADDRESS.sub(moved, instruction.text)


_PREDICATE = re.compile(r"@!?U?P[\dT]+\s+")


def kind_of(sass: str) -> str:
    """``HGMMA`` of ``@P0 HGMMA.64x64x16.F32 R24, gdesc[UR16], R24``."""
    return _PREDICATE.sub("", sass, count=1).partition(" ")[0].partition(".")[0]


def kinds_of(codes: Iterable[Code | None]) -> dict[str, int]:
    """How many instructions of each kind the kernels of some launches have, each kernel once."""
    kernels = {code.sass for code in codes if code is not None}
    return Counter(kind_of(sass) for kernel in kernels for sass in kernel)


def packed(code: Code) -> dict[str, object]:
    """Arrange code as it is kept in a file.

    Texts are in one piece, since a piece is read much faster than many; numbers that rise are kept
    as steps, which take a third less room.
    """
    files = list(dict.fromkeys(file for file, _ in code.places))
    place = {file: number for number, file in enumerate(files)}
    return {
        "first": code.first,
        "addresses": _steps(code.addresses),
        "sass": "\n".join(code.sass),
        "files": files,
        "file": [place[file] for file, _ in code.places],
        "line": _steps([line for _, line in code.places]),
        "executed": code.executed,
        "samples": {
            reason: [_steps(list(counts)), list(counts.values())]
            for reason, counts in code.samples.items()
        },
    }


def unpacked(kept: Mapping[str, Any]) -> Code:
    """Raises LookupError, TypeError or ValueError for what ``packed`` never made."""
    files, executed = kept["files"], kept["executed"]
    lines = accumulate(kept["line"])
    places = [(str(files[f]), int(n)) for f, n in zip(kept["file"], lines, strict=True)]
    return Code(
        first=int(kept["first"]),
        addresses=tuple(accumulate(kept["addresses"])),
        sass=tuple(kept["sass"].split("\n")),
        places=tuple(places),
        executed=None if executed is None else tuple(executed),
        samples={
            reason: dict(zip(accumulate(steps), counts, strict=True))
            for reason, (steps, counts) in kept["samples"].items()
        },
    )


def _steps(rising: Sequence[int]) -> list[int]:
    """The first, and from each to the next."""
    return [*rising[:1], *(after - before for before, after in pairwise(rising))]
