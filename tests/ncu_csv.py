"""What ``ncu --import FILE --page raw --csv --print-units base`` prints, beside a recorded report.

found = read(path)                          # rows of a CSV, launch by launch
disagreements(found, report)                # in words; empty where every value agrees
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.derive.figures import figures
from workbench.ncu.capture import load_capture

KERNEL = "Kernel Name"
# Without these the comparison would say little.
NEEDED = (
    "gpu__time_duration.sum",
    "smsp__inst_executed.sum",
    "smsp__issue_active.avg.per_cycle_active",
    "smsp__cycles_active.avg",
    "gpc__cycles_elapsed.avg.per_second",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
    "smsp__pcsamp_warps_issue_stalled_long_scoreboard",
    "smsp__pcsamp_sample_count",
)


@dataclass(frozen=True)
class Printed:
    """A value as ncu printed it: it may be off by half a unit of its last digit."""

    value: float
    step: float

    def agrees(self, other: float) -> bool:
        return abs(self.value - other) <= 0.5 * self.step + 1e-6 * abs(other)


@dataclass(frozen=True)
class Launch:
    kernel: str
    values: dict[str, Printed]


def printed(text: str) -> Printed | None:
    """None for what is no number. ncu groups digits with commas and prints two decimals."""
    plain = text.replace(",", "").strip()
    try:
        value = float(plain)
    except ValueError:
        return None
    mantissa = plain.lower().partition("e")
    decimals = len(mantissa[0].partition(".")[2])
    return Printed(value, 10.0 ** ((int(mantissa[2]) if mantissa[2] else 0) - decimals))


def read(path: Path) -> list[Launch]:
    """The first line is the header, the second the units, each further one a launch."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("==")]
    header, _, *rows = csv.reader(lines)
    found = []
    for cells in rows:
        row = dict(zip(header, cells, strict=True))
        values = {name: value for name, text in row.items() if (value := printed(text))}
        found.append(Launch(row[KERNEL], values))
    return found


def disagreements(found: list[Launch], report: Path) -> list[str]:
    """Where the product's tables and figures are not what ncu printed, in words; rows are in the
    order of the launches of the report.
    """
    said = [] if found else ["no launch"]
    for number, launch in enumerate(found):
        where = f"launch {number}, {launch.kernel}"
        if missing := [name for name in NEEDED if name not in launch.values]:
            said.append(f"{where}: lacks {', '.join(missing)}")
        else:
            said += [f"{where}: {text}" for text in _differing(launch, report, number)]
    return said


def _differing(launch: Launch, report: Path, index: int) -> Iterator[str]:
    metrics = load_capture(report, (index,)).metrics
    values = dict(zip(metrics["metric"], metrics["value"], strict=True))
    for name in sorted(values.keys() & launch.values.keys()):
        if not launch.values[name].agrees(values[name]):
            yield f"{name} is {launch.values[name].value}, read as {values[name]}"
    at = {name: found.value for name, found in launch.values.items()}
    shown = figures(metrics)
    traffic = at["dram__bytes_read.sum"] + at["dram__bytes_write.sum"]
    expected = {
        "duration": at["gpu__time_duration.sum"] / 1e3,
        "warp_instructions": at["smsp__inst_executed.sum"] / 1e6,
        "achieved_occupancy": at["sm__warps_active.avg.pct_of_peak_sustained_active"],
        "registers": at["launch__registers_per_thread"],
        "dram_bandwidth": traffic / at["gpu__time_duration.sum"],
        "stall.long_scoreboard": 100
        * at["smsp__pcsamp_warps_issue_stalled_long_scoreboard"]
        / at["smsp__pcsamp_sample_count"],
    }
    for key, value in expected.items():
        came = shown[key].value if key in shown else 0.0  # a reason without a sample has no figure
        if abs(came - value) > 0.005 + 1e-4 * abs(value):
            yield f"{key} is {value} by ncu, shown as {came}"
