"""One Nsight Compute report into tall tables, through NVIDIA's ``ncu_report``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import BadCapture, UsageError, unknown
from workbench.load.catalog import STALL_PREFIX, needed_metrics
from workbench.run.ncu import nvtx_ranges

if TYPE_CHECKING:
    import pandas as pd

METRIC_COLUMNS = ["launch", "kernel", "metric", "value", "unit"]
LINE_COLUMNS = ["launch", "kernel", "file", "line", "counter", "value"]
RULE_COLUMNS = ["launch", "kernel", "rule", "section", "title", "message", "scope",
                "estimated_speedup_pct", "focus"]  # fmt: skip
LINE_COUNTERS = {
    "instructions": "inst_executed",
    "excess_global_sectors": "derived__memory_l2_theoretical_sectors_global_excessive",
    "excess_shared_wavefronts": "derived__memory_l1_wavefronts_shared_excessive",
}
# Launches of a report: those of one workbench range, those of some indices, or all.
Wanted = str | tuple[int, ...] | None
CUT = "profile it again; a report cut short by a full disk or a kill cannot be mended"
SCOPES = {1: "local", 2: "global"}
OPTIMIZATION = 2


@dataclass(frozen=True)
class Capture:
    """The launches of one variant in one report.

    ``metrics``: one metric of one launch (launch, kernel, metric, value, unit).
    ``lines``: one counter of one source line (launch, kernel, file, line, counter, value); the
    counter is a stall reason, counted in samples, or a key of ``LINE_COUNTERS``.
    ``rules``: one result of ncu's rules that advises a change; ``focus`` is metric and value.
    ``collected``: which counters of ``lines`` every launch has, be they zero: keys of
    ``LINE_COUNTERS``, and "samples" for the stall reasons.
    """

    path: Path
    kernels: tuple[str, ...]
    metrics: pd.DataFrame
    lines: pd.DataFrame
    rules: pd.DataFrame
    collected: frozenset[str] = frozenset()


def open_report(path: Path) -> Any:
    """The report's context. Raises BadCapture for what is no readable report with launches."""
    import ncu_report

    if not path.is_file():
        raise BadCapture(f"there is no capture {path}", hint="profile the variant again")
    try:
        context = ncu_report.load_report(str(path))
        ranges = context.num_ranges()
    except Exception as error:
        raise BadCapture(
            f"{path} is not a readable Nsight Compute report: {error}", hint=CUT
        ) from None
    if ranges == 0:
        raise BadCapture(
            f"{path} holds no profiled kernel: empty, cut short or no report", hint=CUT
        )
    return context


@lru_cache(maxsize=4)  # reports of twenty launches take half a gigabyte each
def _launches(path: Path) -> list[tuple[Any, list[str]]]:
    """Every launch with its ranges: decoding one takes tens of milliseconds."""
    found = [action for part in open_report(path) for action in part]
    for index, action in enumerate(found):
        if not action.metric_names():  # what ncu_report makes of a block that ends too early
            raise BadCapture(
                f"{path} is cut short: launch {index} has a beginning and no metrics", hint=CUT
            )
    return [(action, nvtx_ranges(action)) for action in found]


def actions(path: Path, wanted: Wanted) -> list[Any]:
    """The wanted launches, in the report's order. Raises BadCapture where there is none."""
    every = _launches(path)
    if isinstance(wanted, tuple):
        found = [every[index][0] for index in wanted if index < len(every)]
    else:
        found = [action for action, ranges in every if wanted is None or wanted in ranges]
    if not found or (isinstance(wanted, tuple) and len(found) != len(wanted)):
        raise BadCapture(f"{path} holds no launch of {wanted}", hint="profile the variant again")
    return found


def metric_value(action: Any, name: str) -> tuple[float | str, str] | None:
    """Value and unit; None where the report has no such metric, or has it without a value.

    ``value()`` of an unset metric is 0 or None: ``has_value`` tells it from a true zero.
    """
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_value():
        return None
    value = metric.value()
    if value is None:
        return None
    return (value if isinstance(value, str) else float(value)), metric.unit() or ""


def kernel_name(action: Any) -> str:
    return str(action.name(action.NameBase_FUNCTION))


def read_metrics(launches: list[Any], names: Iterable[str]) -> list[tuple[Any, ...]]:
    rows = []
    for index, action in enumerate(launches):
        for name in names:
            found = metric_value(action, name)
            if found is not None and not isinstance(found[0], str):
                rows.append((index, kernel_name(action), name, *found))
    return rows


def stall_metrics(action: Any) -> dict[str, str]:
    """Stall reason to the metric that counts its samples."""
    return _stall_metrics(tuple(action.metric_names()))


@lru_cache(maxsize=16)  # launches of one report hold the same metrics, over a thousand
def _stall_metrics(names: tuple[str, ...]) -> dict[str, str]:
    return {
        name.removeprefix(STALL_PREFIX): name
        for name in names
        if name.startswith(STALL_PREFIX) and not name.endswith("_not_issued")
    }


def place(action: Any, pc: int) -> tuple[str, int]:
    info = action.source_info(pc)
    return (str(info.file_name()), int(info.line())) if info else ("", 0)


def read_lines(launches: list[Any]) -> list[tuple[Any, ...]]:
    """Stall samples and counters summed by source line; "" and 0 where no line is known."""
    rows = []
    for index, action in enumerate(launches):
        where: dict[int, tuple[str, int]] = {}

        for counter, name in {**stall_metrics(action), **LINE_COUNTERS}.items():
            metric = action.metric_by_name(name)
            if metric is None or not metric.has_correlation_ids() or not metric.value():
                continue
            ids = metric.correlation_ids()
            sums: dict[tuple[str, int], float] = defaultdict(float)
            for i in range(metric.num_instances()):
                value = metric.as_double(i)
                if value:
                    pc = ids.as_uint64(i)
                    if pc not in where:
                        where[pc] = place(action, pc)
                    sums[where[pc]] += float(value)
            for (file, line), value in sums.items():
                rows.append((index, kernel_name(action), file, line, counter, value))
    return rows


def read_rules(launches: list[Any]) -> list[tuple[Any, ...]]:
    rows = []
    for index, action in enumerate(launches):
        for rule in action.rule_results_as_dicts():
            message = rule.get("rule_message", {})
            if int(message.get("type", 0)) != OPTIMIZATION:
                continue
            estimate = rule.get("speedup_estimation", {})
            focus = [(f["name"], float(f["value"])) for f in rule.get("focus_metrics", [])]
            rows.append((
                index, kernel_name(action), rule.get("rule_identifier", ""),
                rule.get("section_identifier", ""), message.get("title", ""),
                message.get("message", ""), SCOPES.get(int(estimate.get("type", 0)), ""),
                float(estimate["speedup"]) if "speedup" in estimate else float("nan"), focus,
            ))  # fmt: skip
    return rows


def collected(launches: list[Any]) -> frozenset[str]:
    """The line counters that all launches have, zero or not."""
    found = {
        counter
        for counter, name in LINE_COUNTERS.items()
        if all((m := a.metric_by_name(name)) is not None and m.has_value() for a in launches)
    }
    if all(stall_metrics(action) for action in launches):
        found.add("samples")
    return frozenset(found)


def has_rules(path: Path, wanted: Wanted) -> bool:
    """Whether ncu ran its rules on these launches: without them there is no advice to miss."""
    return any(action.rule_results_as_dicts() for action in actions(path, wanted))


def load_capture(path: Path, wanted: Wanted = None) -> Capture:
    """Read the wanted launches. Raises BadCapture for a report that cannot be read."""
    import pandas as pd

    launches = actions(path, wanted)
    stalls = list(dict.fromkeys(n for a in launches for n in stall_metrics(a).values()))
    return Capture(
        path,
        tuple(kernel_name(a) for a in launches),
        pd.DataFrame(read_metrics(launches, [*needed_metrics(), *stalls]), columns=METRIC_COLUMNS),
        pd.DataFrame(read_lines(launches), columns=LINE_COLUMNS),
        pd.DataFrame(read_rules(launches), columns=RULE_COLUMNS),
        collected(launches),
    )


def load_sources(path: Path, wanted: Wanted) -> dict[str, str]:
    """Source text by the file name in the line table, as imported into the report."""
    texts: dict[str, str] = {}
    for action in actions(path, wanted):
        texts.update({name: text for name, text in dict(action.source_files()).items() if text})
    return texts


def find_metric(path: Path, wanted: Wanted, name: str) -> list[dict[str, Any]]:
    """Any metric of the capture, launch by launch. Raises UsageError naming the nearest one."""
    rows = []
    known: set[str] = set()
    for index, action in enumerate(actions(path, wanted)):
        names = set(action.metric_names())
        known |= names
        if name not in names:
            continue
        found = metric_value(action, name)
        value, unit = found if found else (None, "")
        row = {"launch": index, "kernel": kernel_name(action), "metric": name}
        rows.append({**row, "value": value, "unit": unit})
    if not rows:
        raise unknown("metric", name, known)
    return rows


def require_lines(capture: Capture) -> None:
    if not (capture.lines["line"] > 0).any():
        raise UsageError(
            "this capture has no source lines: its kernels were built without line information",
            hint="library kernels have none; NVRTC variants built by the workbench do",
        )
