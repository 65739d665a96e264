"""The launches of one Nsight Compute report as tall tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from workbench.errors import BadCapture, UsageError, unknown
from workbench.ncu.catalog import GLOBAL_SECTORS, STALL_PREFIX, needed_metrics
from workbench.ncu.disassembly import (
    INSTRUCTIONS,
    LINE_COUNTERS,
    Code,
    Counted,
    counted,
    read_code,
    stall_metrics,
    unpacked,
)
from workbench.ncu.places import lasting_name, tables_in
from workbench.ncu.reader import (
    CUT,
    Wanted,
    actions,
    extents,
    kernel_name,
    limited,
    mangled_name,
    metric_names,
    metric_value,
    number,
)
from workbench.study.files import json_data

METRIC_COLUMNS = ["launch", "kernel", "metric", "value", "unit"]
LINE_COLUMNS = ["launch", "kernel", "file", "line", "counter", "value"]
RULE_COLUMNS = [
    "launch",
    "kernel",
    "rule",
    "section",
    "title",
    "message",
    "scope",
    "estimated_speedup_pct",
    "focus",
]
SCOPES = {1: "local", 2: "global"}
OPTIMIZATION = 2
MOST = 2.0**63
# What the SMs asked of L2, reads and writes, bulk copies among them; a sector has 32 bytes.
L2_SECTORS, SECTOR_BYTES = "lts__t_sectors_srcunit_tex.sum", 32
# In the message of a rule: all that tables have which are older than GLOBAL_SECTORS. Where nothing
# is in excess there is no message, and loads and stores stand for all.
TOTAL_SECTORS = re.compile(r"of the total (\d+) sectors")
LOADS_AND_STORES = tuple(f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in ("ld", "st"))

Extents = tuple[int, int, int]


@dataclass(frozen=True)
class Launched:
    """A launched kernel with its extents (x, y, z), as a node of a CUDA graph has them.

    ``mangled`` is the name that the driver has; ``l2_bytes`` went between the SMs and L2. None is
    not collected.
    """

    mangled: str
    grid: Extents | None
    block: Extents | None
    l2_bytes: float | None


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """Rows under named columns; one does not change any more."""

    entries: Sequence[tuple[Any, ...]] = field(repr=False)
    columns: Sequence[str]

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, column: str) -> list[Any]:
        place = self.columns.index(column)
        return [row[place] for row in self.entries]

    def rows(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """The values of several columns, one tuple a row."""
        return map(itemgetter(*map(self.columns.index, columns)), self.entries)

    @cached_property
    def by_launch(self) -> Mapping[int, Mapping[str, float]]:
        """Launch number to metric name to value, of a table of metrics."""
        launches: dict[int, dict[str, float]] = {}
        for launch, name, value in self.rows("launch", "metric", "value"):
            launches.setdefault(int(launch), {})[str(name)] = float(value)
        return launches


@cache  # as ``reader`` has the launches: disassembling one takes a tenth of a second
def _counted(action: Any, path: Path) -> Counted:
    tables = tables_in(path)
    with limited(path):
        return counted(action, tables)


@dataclass(frozen=True)
class Decoded:
    """One launch through ``ncu_report``. Each table is read when it is first asked for: lines take
    as long as decoding the launch did.
    """

    action: Any = field(repr=False)
    path: Path

    @cached_property
    def kernel(self) -> str:
        return kernel_name(self.action)

    @cached_property
    def metrics(self) -> list[tuple[Any, ...]]:
        names = [*needed_metrics(), *stall_metrics(self.action).values()]
        every = ((name, metric_value(self.action, name)) for name in names)
        numbers = [(name, *v) for name, v in every if v and not isinstance(v[0], str)]
        if wrong := impossible(numbers):
            raise BadCapture(f"{self.path} {wrong}", hint=CUT)
        return numbers

    @property
    def _counted(self) -> Counted:
        return _counted(self.action, self.path)

    @cached_property
    def lines(self) -> list[tuple[Any, ...]]:
        with limited(self.path):
            return read_lines(self._counted)

    @cached_property
    def calls(self) -> list[tuple[Any, ...]]:
        """File and line of a helper, then of the call that most of its samples came through."""
        sums: dict[Any, dict[Any, float]] = defaultdict(lambda: defaultdict(float))
        with limited(self.path):
            places = self._counted.places
            for counter, counts in self._counted.by_pc.items():
                for pc, value in counts if counter != INSTRUCTIONS else ():
                    waiting = places.waiting(pc, counter)
                    if call := places.called_at(waiting):
                        sums[places.itself(waiting)][call] += value
        return [(*place, *max(calls, key=lambda c: (calls[c], c))) for place, calls in sums.items()]

    @cached_property
    def code(self) -> Code | None:
        with limited(self.path):
            return read_code(self._counted)

    @cached_property
    def rules(self) -> list[tuple[Any, ...]]:
        rows = []
        for rule in self.action.rule_results_as_dicts():
            message = rule.get("rule_message", {})
            if int(message.get("type", 0)) != OPTIMIZATION:
                continue
            estimate = rule.get("speedup_estimation", {})
            focus = [(f["name"], float(f["value"])) for f in rule.get("focus_metrics", [])]
            rows.append(
                (
                    rule.get("rule_identifier", ""),
                    rule.get("section_identifier", ""),
                    message.get("title", ""),
                    message.get("message", ""),
                    SCOPES.get(int(estimate.get("type", 0)), ""),
                    float(estimate["speedup"]) if "speedup" in estimate else float("nan"),
                    focus,
                )
            )
        return rows

    def has_opcode(self, opcode: str) -> bool:
        return self.code is not None and any(opcode in sass for sass in self.code.sass)

    @cached_property
    def collected(self) -> frozenset[str]:
        """The line counters that the launch has, zero or not."""
        every = {name: self.action.metric_by_name(of) for name, of in LINE_COUNTERS.items()}
        names = [
            name for name, metric in every.items() if metric is not None and metric.has_value()
        ]
        return frozenset([*names, *(["samples"] if stall_metrics(self.action) else [])])

    @cached_property
    def launched(self) -> Launched:
        sectors = number(self.action, L2_SECTORS)
        return Launched(
            mangled=mangled_name(self.action),
            grid=extents(self.action, "grid"),
            block=extents(self.action, "block"),
            l2_bytes=None if sectors is None else sectors * SECTOR_BYTES,
        )


@dataclass(frozen=True)
class KeptTables:
    """One launch from a file of tables (see ``captures``), maybe kept without ``launched``."""

    kernel: str
    metrics: list[tuple[str, float, str]]
    lines: list[tuple[Any, ...]]
    rules: list[tuple[str, str, str, str, str, float, list[tuple[str, float]]]]
    collected: frozenset[str]
    launched: Launched | None = None
    instructions: bytes = b""
    calls: list[tuple[str, int, str, int]] = field(default_factory=list)  # none in older tables

    @cached_property
    def code(self) -> Code | None:
        """Unpacked when it is asked for: most verbs do not look at it."""
        kept = json_data(self.instructions or b"null")
        return unpacked(kept) if kept else None

    def has_opcode(self, opcode: str) -> bool:
        return opcode.encode() in self.instructions


# One launch as rows of the tables of ``Capture``, without the columns launch and kernel.
Tables = Decoded | KeptTables


@dataclass(frozen=True)
class Capture:
    """The launches of one variant in one report."""

    path: Path
    launches: tuple[Tables, ...] = field(repr=False)

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        return tuple(launch.kernel for launch in self.launches)

    @cached_property
    def launched(self) -> tuple[Launched, ...] | None:
        """None where the tables that were kept do not say it of every launch."""
        by_launch = [launch.launched for launch in self.launches]
        launched_kernels = tuple(launched for launched in by_launch if launched is not None)
        return launched_kernels if len(launched_kernels) == len(by_launch) else None

    @cached_property
    def metrics(self) -> ColumnTable:
        """One metric of one launch: see ``METRIC_COLUMNS``."""
        return _table((launch.metrics for launch in self.launches), self.kernels, METRIC_COLUMNS)

    @cached_property
    def lines(self) -> ColumnTable:
        """One counter of one source line: see ``LINE_COLUMNS``.

        The counter is a stall reason, counted in samples, or a key of ``LINE_COUNTERS``.
        """
        return _table((launch.lines for launch in self.launches), self.kernels, LINE_COLUMNS)

    @cached_property
    def calls(self) -> Mapping[tuple[str, int], tuple[str, int]]:
        """The line of a helper to the line of the kernel's own file that calls it."""
        every = (call for launch in self.launches for call in launch.calls)
        return {(file, line): (caller, at) for file, line, caller, at in every}

    @cached_property
    def code(self) -> tuple[Code | None, ...]:
        """The instructions of every launch; None of one whose report has no disassembly of it."""
        return tuple(launch.code for launch in self.launches)

    def has_opcode(self, opcode: str) -> bool:
        """Whether a launch has such an instruction; False without a disassembly."""
        return any(launch.has_opcode(opcode) for launch in self.launches)

    @cached_property
    def rules(self) -> ColumnTable:
        """One result of ncu's rules that advises a change; ``focus`` is metric and value."""
        return _table((launch.rules for launch in self.launches), self.kernels, RULE_COLUMNS)

    @cached_property
    def global_sectors(self) -> float | None:
        """Sectors of all global accesses of all launches; None where not collected."""
        every = [_global_sectors(launch) for launch in self.launches]
        counted = [sectors for sectors in every if sectors is not None]
        return sum(counted) if len(counted) == len(every) else None

    @cached_property
    def collected(self) -> frozenset[str]:
        """Name the counters of ``lines`` that every launch has, be they zero.

        They are keys of ``LINE_COUNTERS``, and "samples" for the stall reasons.
        """
        return frozenset.intersection(*(launch.collected for launch in self.launches))


def _global_sectors(launch: Tables) -> float | None:
    values: dict[str, float] = {name: value for name, value, _ in launch.metrics}
    if GLOBAL_SECTORS in values:
        return values[GLOBAL_SECTORS]
    messages = (message for _, _, _, message, *_ in launch.rules)
    if total := next(filter(None, map(TOTAL_SECTORS.search, messages)), None):
        return float(total[1])
    parts = [values[name] for name in LOADS_AND_STORES if name in values]
    return sum(parts) if len(parts) == len(LOADS_AND_STORES) else None


def _table(
    launches: Iterable[Sequence[tuple[Any, ...]]], kernels: Sequence[str], columns: list[str]
) -> ColumnTable:
    rows = [(index, kernels[index], *row) for index, rows in enumerate(launches) for row in rows]
    return ColumnTable(rows, columns)


def impossible(metrics: Iterable[tuple[Any, ...]]) -> str:
    """Say what no counter can have: a number beyond 64 bits, or fewer than none; "" for nothing."""
    for name, value, _ in metrics:
        if not -MOST < value < MOST or (value < 0 and name.startswith(STALL_PREFIX)):
            return f"has '{name}' {value:g}, which is impossible"
    return ""


def read_lines(counters: Counted) -> list[tuple[Any, ...]]:
    """Sum samples and counters by source line, as ``places`` charges them; "" and 0 is no line."""
    rows = []
    for counter, counts in counters.by_pc.items():
        sums: dict[tuple[str, int], float] = defaultdict(float)
        for pc, value in counts:
            sums[counters.places.of(pc, counter)] += value
        rows += [(file, line, counter, value) for (file, line), value in sums.items()]
    return rows


def has_rules(path: Path, wanted: Wanted) -> bool:
    """Whether ncu ran its rules on these launches: without them there is no advice to miss."""
    return any(action.rule_results_as_dicts() for action in actions(path, wanted))


def load_capture(path: Path, wanted: Wanted = None) -> Capture:
    """The wanted launches. Raises BadCapture for a report that cannot be read."""
    return Capture(path, tuple(Decoded(action, path) for action in actions(path, wanted)))


def load_sources(path: Path, wanted: Wanted) -> dict[str, str]:
    """Source text by the file name in the line table, as imported into the report."""
    texts: dict[str, str] = {}
    for action in actions(path, wanted):
        files = dict(action.source_files())
        texts.update({lasting_name(name): text for name, text in files.items() if text})
    return texts


@dataclass(frozen=True)
class MetricValue:
    """A metric of a launch, counted from 0; ``value`` is None where ncu has none of it."""

    launch: int
    kernel: str
    metric: str
    value: float | str | None
    unit: str


def find_metric(path: Path, wanted: Wanted, name: str) -> list[MetricValue]:
    """Any metric of the capture, launch by launch. Raises UsageError naming the nearest one."""
    every = actions(path, wanted)
    rows = [
        MetricValue(index, kernel_name(action), name, *(metric_value(action, name) or (None, "")))
        for index, action in enumerate(every)
        if name in metric_names(action)
    ]
    if not rows:
        raise unknown("metric", name, set(chain.from_iterable(map(metric_names, every))))
    return rows


def kept_metric(capture: Capture, name: str) -> list[MetricValue]:
    """Read a metric of a capture whose report was not kept.

    Its tables hold those metrics that some figure needs. Raises UsageError for others.
    """
    table = capture.metrics
    every = (MetricValue(*row) for row in table.rows(*METRIC_COLUMNS))
    rows = [value for value in every if value.metric == name]
    if not rows:
        error = unknown("metric", name, set(table["metric"]))
        raise UsageError(f"{error.message}: {capture.path.name} was not kept", hint=error.hint)
    return rows


def has_lines(capture: Capture) -> bool:
    """Whether anything in it is charged to a line of a source."""
    return any(line > 0 for line in capture.lines["line"])


def require_lines(capture: Capture, why: str = "") -> None:
    """Raises UsageError for a capture without any, with the reason where it is known."""
    if not has_lines(capture):
        why = why or "its kernels were built without line information"
        raise UsageError(
            f"this capture has no source lines: {why}",
            hint="library kernels have none; NVRTC variants built by the workbench do",
        )
