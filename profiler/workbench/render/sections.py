"""The tables of the report, each a pure function of the ablation or of one row."""

from __future__ import annotations

import math
from collections.abc import Iterable

from workbench.derive.speedup import Time
from workbench.judge.ablation import Ablation, Row
from workbench.judge.bottlenecks import Bottleneck
from workbench.load.evidence import CURRENT
from workbench.render.markdown import code, literal, shorten
from workbench.render.moves import moved
from workbench.render.tables import (
    ABSENT,
    NONE,
    factor,
    markdown_table,
    number,
    percent,
    reason,
)

KERNEL_WIDTH = 90
MESSAGE_WIDTH = 700
ENVIRONMENT = (
    ("GPU", "gpu"), ("Compute capability", "compute_capability"), ("Driver", "driver"),
    ("CUDA", "cuda"), ("NVRTC", "nvrtc"), ("PyTorch", "torch"), ("cuDNN", "cudnn"),
    ("Python", "python"), ("Nsight Compute", "ncu"), ("ncu flags", "ncu_flags"),
)  # fmt: skip
# Column of the ablation table to the figure behind it.
COLUMNS = (
    ("DRAM GB/s", "dram_bandwidth"), ("DRAM % of peak", "dram_pct"),
    ("occupancy %", "achieved_occupancy"),
)  # fmt: skip


def environment(ablation: Ablation) -> str:
    parameters = " ".join(f"{key}={value}" for key, value in ablation.parameters.items())
    found = ablation.environment
    rows = [["Study and shape", f"{code(ablation.study)}, {code(ablation.shape)} ({parameters})"]]
    for label, key in ENVIRONMENT:
        value = str(found.get(key) or ABSENT)
        rows.append(
            [label, code(value) if key == "ncu_flags" and value != ABSENT else literal(value)]
        )
    rows.append(["SM clock under ncu", _clocks(ablation)])
    rows.append(["Date", f"{literal(str(found.get('date') or ABSENT))} ({ablation.source})"])
    return markdown_table(["what", "value"], rows, "ll")


def _clocks(ablation: Ablation) -> str:
    clocks = [r.figures["sm_clock"].value for r in ablation.everything if "sm_clock" in r.figures]
    if not clocks:
        return ABSENT
    low, high = number(min(clocks)), number(max(clocks))
    return f"{low} GHz" if low == high else f"{low} to {high} GHz"


def times(ablation: Ablation) -> str:
    header = ["version", "warm (µs)", "95 % of samples", "cold (µs)", "95 % of samples", "samples"]
    rows = [
        [row.variant, *_time(row.warm), *_time(row.cold),
         str(row.warm.samples) if row.warm else NONE]
        for row in ablation.everything
    ]  # fmt: skip
    return markdown_table(header, rows, "lrrrrr")


def _time(found: Time | None) -> list[str]:
    if found is None:
        return [ABSENT, NONE]
    return [number(found.median), f"{number(found.low)} to {number(found.high)}"]


COMPUTE_ROOFS = {"tensor": "dense FP16 tensor", "half": "packed FP16", "fp32": "FP32"}


def roofline(ablation: Ablation) -> str:
    header = ["version", "FLOP per DRAM byte", "TFLOP/s", "roof over it (TFLOP/s)", "set by",
              "share of roof"]  # fmt: skip
    rows = []
    for row in ablation.everything:
        point, roof = row.point, ablation.ceilings
        if point is None or roof is None:
            rows.append([row.variant, *[ABSENT] * 3, literal(reason(row)), ABSENT])
            continue
        by = "DRAM" if point.limit == "dram" else COMPUTE_ROOFS[point.ceiling]
        wrong = " (above its roof: an error in the data)" if point.above_roof else ""
        rows.append([row.label, number(point.intensity), number(point.flops_per_second / 1e12),
                     number(point.bound / 1e12), by, percent(point.share) + wrong])  # fmt: skip
    return markdown_table(header, rows, "lrrrlr")


def predictions(row: Row) -> str:
    rows = []
    for outcome in row.predictions:
        unit = f" ({outcome.unit})" if outcome.unit else ""
        rows.append([literal(outcome.label + unit), literal(outcome.expected),
                     number(outcome.before), number(outcome.after), outcome.result])  # fmt: skip
    return markdown_table(["figure", "expected", "before", "after", "result"], rows, "llrrl")


def gates(row: Row) -> str:
    words = {True: "passed", False: "failed", None: "open"}
    rows = [[gate.name, words[gate.passed], literal(gate.why)] for gate in row.gates]
    return markdown_table(["gate", "result", "why"], rows, "lll")


def moves(row: Row, parent: Row) -> str:
    """What moved from the parent to this step; empty where nothing can be compared."""
    rows = []
    for move in moved(parent.figures, row.figures):
        times = move.factor
        rows.append([f"{move.label} ({move.unit})", number(move.before), number(move.after),
                     factor(times) if times is not None else NONE])  # fmt: skip
    return markdown_table(["figure", "before", "after", "factor"], rows, "lrrr") if rows else ""


def estimate(found: Bottleneck) -> str:
    if not math.isfinite(found.estimated_speedup_pct):
        return f"estimated speedup {ABSENT}"
    scope = {"global": "of the whole runtime", "local": "of the part this rule covers"}
    words = scope.get(found.scope, literal(found.scope) or "of an unnamed scope")
    return f"NVIDIA's estimated speedup {number(found.estimated_speedup_pct)} % {words}"


def evidence(found: Bottleneck) -> str:
    value = number(found.value) if math.isfinite(found.value) else ABSENT
    return f"{code(found.metric)} = {value}" if found.metric else ABSENT


def hot_line(found: Bottleneck) -> str:
    """``file:line`` and its share; ``none named`` where the rule speaks of the whole launch."""
    line = found.hot_line
    if line is None:
        return "none named"
    counter = literal("stall" if line.counter == "stalls" else line.counter.replace("_", " "))
    counted = counter if counter.startswith("excess") else f"{counter} samples"
    where = code(f"{line.file.rsplit('/', 1)[-1]}:{line.line}")
    return f"{where}, {percent(line.share)} of its {counted}"


def message(found: Bottleneck) -> str:
    return literal(shorten(found.message, MESSAGE_WIDTH)) if found.message else ABSENT


def sources(ablation: Ablation) -> str:
    """Column of the ablation table, and the ncu metric or file behind it."""
    timing = code(ablation.timing_file) if ablation.timing_file else ABSENT
    rows = [["time, and every ratio", f"samples in {timing}"]]
    for column, name in COLUMNS:
        metrics = dict.fromkeys(
            row.figures[name].metric for row in ablation.everything if name in row.figures
        )
        rows.append([column, "; ".join(map(code, metrics)) or ABSENT])
    stalls = any(row.stalls for row in ablation.everything)
    states = f"{code('smsp__pcsamp_warps_issue_stalled_*')}, share of their sum"
    rows.append(["top stall", states if stalls else ABSENT])
    return markdown_table(["column", "from"], rows, "ll")


def captures(ablation: Ablation) -> str:
    rows = []
    for row in ablation.everything:
        missing = ABSENT if row.status == CURRENT else f"{ABSENT}: {literal(reason(row))}"
        rows.append(
            [row.label, code(row.capture) if row.capture else missing, _kernels(row.kernels)]
        )
    return markdown_table(["version", "capture", "kernels"], rows, "lll")


def _kernels(names: Iterable[str]) -> str:
    return ", ".join(code(shorten(name, KERNEL_WIDTH)) for name in names) or NONE
