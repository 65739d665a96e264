"""The tables of the report, each a pure function of the ablation or of one row."""

from __future__ import annotations

import math
from collections.abc import Iterable

from workbench.derive.factors import FACTORS, LABELS, METRICS, SpeedupFactors
from workbench.derive.speedup import Time
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.rows import Ablation, Row
from workbench.judge.shapes import AtShape
from workbench.render import why
from workbench.render.old_markdown import code, literal, shorten
from workbench.render.tables import interval, markdown_table, number, percent, reason
from workbench.words import ABSENT, NONE, Status

KERNEL_WIDTH = 90
MESSAGE_WIDTH = 700
ENVIRONMENT = (
    ("GPU", "gpu"),
    ("Compute capability", "compute_capability"),
    ("Driver", "driver"),
    ("CUDA", "cuda"),
    ("NVRTC", "nvrtc"),
    ("PyTorch", "torch"),
    ("cuDNN", "cudnn"),
    ("Python", "python"),
    ("Nsight Compute", "ncu"),
    ("ncu flags", "ncu_flags"),
)
# Column of the ablation table to the figure behind it.
COLUMNS = (
    ("DRAM GB/s", "dram_bandwidth"),
    ("DRAM % of peak", "dram_pct"),
    ("occupancy %", "achieved_occupancy"),
)


def environment_rows(ablation: Ablation) -> list[list[str]]:
    """What and its value, in plain text."""
    parameters = " ".join(f"{key}={value}" for key, value in ablation.parameters.items())
    found = ablation.environment
    rows = [["Study and shape", f"{ablation.study}, {ablation.shape} ({parameters})"]]
    rows += [[label, _shown(getattr(found, key))] for label, key in ENVIRONMENT]
    rows.append(["SM clock under ncu", _clocks(ablation)])
    rows.append(["Date", f"{found.date or ABSENT} ({ablation.source})"])
    return rows


def _shown(value: str | tuple[str, ...] | None) -> str:
    return (" ".join(value) if isinstance(value, tuple) else value) or ABSENT


def environment(ablation: Ablation) -> str:
    flags = dict(ENVIRONMENT)
    rows = [
        [
            what,
            code(value) if flags.get(what) == "ncu_flags" and value != ABSENT else literal(value),
        ]
        for what, value in environment_rows(ablation)
    ]
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
        [
            row.variant,
            *_time(row.warm),
            *_time(row.cold),
            str(row.warm.samples) if row.warm else NONE,
        ]
        for row in ablation.everything
    ]
    return markdown_table(header, rows, "lrrrrr")


def _time(found: Time | None) -> list[str]:
    if found is None:
        return [ABSENT, NONE]
    return [number(found.median), f"{number(found.low)} to {number(found.high)}"]


ACROSS = ("shape", "time, warm (µs)", "TFLOP/s", "reference (µs)", "vs reference [95 % interval]")


def across_rows(ablation: Ablation) -> list[list[str]]:
    """The last step at every shape where it was timed."""
    return [
        [
            _shape(found),
            number(found.time.median),
            number(found.flops_per_second / 1e12),
            number(found.reference.median if found.reference else None),
            interval(found.over_reference),
        ]
        for found in (ablation.across.results if ablation.across else ())
    ]


def _shape(found: AtShape) -> str:
    return " ".join(
        key if value is True else f"{key}={value}"
        for key, value in found.parameters.items()
        if value is not False
    )


def across(ablation: Ablation) -> str:
    return markdown_table(list(ACROSS), across_rows(ablation), "lrrrr")


def predictions(row: Row) -> str:
    rows = []
    for outcome in row.predictions:
        unit = f" ({outcome.unit})" if outcome.unit else ""
        rows.append(
            [
                literal(outcome.label + unit),
                literal(outcome.expected),
                number(outcome.before),
                number(outcome.after),
                outcome.result,
            ]
        )
    return markdown_table(["figure", "expected", "before", "after", "result"], rows, "llrrl")


def gates(row: Row) -> str:
    words = {True: "passed", False: "failed", None: "open"}
    rows = [[gate.name, words[gate.passed], literal(gate.why)] for gate in row.gates]
    return markdown_table(["gate", "result", "why"], rows, "lll")


def factors(found: SpeedupFactors) -> str:
    return markdown_table(["factor", "before", "after", "gain"], why.factor_rows(found), "lrrr")


def explained(ablation: Ablation) -> str:
    """Which durations the factors explain: what the captures' cache control makes of them."""
    flushed = ablation.environment.ncu_options.get("--cache-control") == "all"
    words = (
        "they compare with the cold times, not with the warm ones"
        if flushed
        else ("they are of single launches under the profiler, not the warm times of the table")
    )
    return f"Captures are runs of their own{', with the caches flushed' * flushed}: {words}."


def moves(found: Comparison) -> str:
    """What moved, the launch parameters that changed, and what only followed the duration."""
    said = [why.moves(found) or "No figure moved beyond the noise of a capture."]
    if found.standouts.launch:
        said.append(f"Launched otherwise: {why.launch(found)}.")
    if found.standouts.paced:
        said.append(f"Only following the duration, with the amount unchanged: {why.paced(found)}.")
    return "\n\n".join(said)


def rules(found: Comparison) -> str:
    rows = [[literal(title), code(rule), *rest] for title, rule, *rest in why.rule_rows(found)]
    header = ["rule", "id", "scope", f"estimate at {found.before}", f"at {found.after}", "change"]
    said = [markdown_table(header, rows, "lllrrl")] if rows else []
    if alike := why.rules_alike(found):
        said.append(f"{alike} {'more say' if rows else 'say'} the same as before.")
    return "\n\n".join(said)


def promises(ablation: Ablation) -> str:
    rows = [
        [step, literal(top), first, literal(gone), *rest]
        for step, top, first, gone, *rest in why.promise_rows(ablation)
    ]
    if not rows:
        return f"NVIDIA's estimates: {ABSENT}."
    return markdown_table(list(why.PROMISE_HEADER), rows, "llrlrr")


def score(ablation: Ablation) -> str:
    """How the predictions of the ladder came out, in a sentence."""
    found = ablation.score
    if not found.total:
        return f"Predictions: {ABSENT}."
    return (
        f"Of {found.total} predictions, written before measuring: **{found.confirmed} confirmed, "
        f"{found.refuted} refuted, {found.not_measurable} not measurable**."
    )


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
    rows += [[f"factor: {LABELS[key][0].lower()}", code(METRICS[key])] for key in FACTORS]
    return markdown_table(["column", "from"], rows, "ll")


def captures(ablation: Ablation) -> str:
    rows = []
    for row in ablation.everything:
        missing = ABSENT if row.status == Status.CURRENT else f"{ABSENT}: {literal(reason(row))}"
        rows.append(
            [row.label, code(row.capture) if row.capture else missing, _kernels(row.kernels)]
        )
    return markdown_table(["version", "capture", "kernels"], rows, "lll")


def _kernels(names: Iterable[str]) -> str:
    return ", ".join(code(shorten(name, KERNEL_WIDTH)) for name in names) or NONE
