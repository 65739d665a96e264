"""Describe anyone's Nsight Compute report: its launches, GPU, ncu and options."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import UsageError, nearest
from workbench.ncu.reader import extents, kernel_name, metric_value, number
from workbench.ncu.reader import launches as launches_in
from workbench.study.files import decompressed_pieces, for_shell, no_file, stands
from workbench.study.foreign_files import kind_of
from workbench.words import shown

SUFFIXES = (".ncu-rep", ".ncu-repz")
KINDS = {0: "kernel", 1: "range", 2: "command list", 3: "graph"}
OPTIONS = ("--set", "--clock-control", "--cache-control", "--replay-mode")
OVERLAP = 4096
_VARIANT = re.compile(r"\w+(\[.*\])?", re.DOTALL)
_VERSION = re.compile(rb"Nsight Compute[ A-Za-z]*\x12.(20\d\d\.\d+\.\d+)", re.DOTALL)
_COMMAND = re.compile(rb"[/\\]n(?:v-nsight-cu-cli|cu)(?:\.exe)? (--?[A-Za-z][ -~]*)")


@dataclass(frozen=True)
class Launch:
    """One profiled kernel (or range, or graph). ``index`` counts from 0 in the report's order.

    ``kernel`` is the function's name, ``signature`` the demangled one with template arguments.
    ``grid`` and ``block`` are (x, y, z), ``microseconds`` is GPU time, ``sm_clock_ghz`` in GHz;
    None is not collected. ``range`` is the workbench's own around it, "" where there is none.
    """

    index: int
    kernel: str
    signature: str
    kind: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    microseconds: float | None
    sm_clock_ghz: float | None
    gpu: str
    range: str = ""

    @property
    def shape(self) -> tuple[Any, ...]:
        return (self.grid, self.block)


@dataclass(frozen=True)
class Report:
    """One report file. ``gpus`` and ``compute_capability`` are as its launches say, ``ncu`` is the
    version that wrote it, ``ncu_options`` those of its command line that decide which numbers came
    out; empty where the file does not say.
    """

    path: Path = field(repr=False)
    launches: tuple[Launch, ...] = field(repr=False)
    gpus: tuple[str, ...]
    compute_capability: str
    ncu: str
    ncu_options: dict[str, str] = field(default_factory=dict)

    @property
    @shown
    def name(self) -> str:
        return self.path.name


def is_report(argument: str) -> bool:
    """Whether an argument of a verb names a report rather than a variant."""
    if argument.endswith(SUFFIXES):
        return True
    return stands(Path(argument)) and not _VARIANT.fullmatch(argument)


def require_file(path: Path) -> None:
    """Raises UsageError for what is no readable file, naming the nearest report beside it, and for
    a file that is known to be another tool's.
    """
    is_dangling = path.is_symlink() and not path.exists()
    if no_file(path) and not (is_dangling and kind_of(path)):
        folder = path if path.is_dir() else path.parent
        reports = [str(p) for s in SUFFIXES for p in folder.glob(f"*{s}") if not no_file(p)]
        raise UsageError(
            f"{path} is a folder" if path.is_dir() else f"there is no file {path}",
            hint=nearest(str(path), reports) if reports else "there is no report in that folder",
        )
    if not no_file(path) and not os.access(path, os.R_OK):
        raise UsageError(
            f"{path} may not be read by you",
            hint=f"`chmod u+r {for_shell(path)}`, or ask its owner",
        )
    if kind := kind_of(path):
        raise UsageError(f"{path} is {kind[0]}, and no report of Nsight Compute", hint=kind[1])


def _dimensions(action: Any, what: str) -> tuple[int, ...] | None:
    total = number(action, f"launch__{what}_size")
    return extents(action, what) or (None if total is None else (int(total),))


def _scaled(action: Any, name: str, scale: float) -> float | None:
    value = number(action, name)
    return None if value is None else value * scale


def _launch(index: int, action: Any, ranges: Sequence[str]) -> Launch:
    gpu = metric_value(action, "device__attribute_display_name")
    return Launch(
        index,
        kernel_name(action),
        str(action.name(action.NameBase_DEMANGLED) or kernel_name(action)),
        KINDS.get(int(action.workload_type()), "other"),
        _dimensions(action, "grid"),
        _dimensions(action, "block"),
        _scaled(action, "gpu__time_duration.sum", 1e-3),
        _scaled(action, "gpc__cycles_elapsed.avg.per_second", 1e-9),
        str(gpu[0]) if gpu else "",
        "; ".join(ranges),
    )


def read_report(path: Path) -> Report:
    """Raises UsageError for a missing file, BadCapture for one that is no readable report."""
    require_file(path)
    in_order = launches_in(path)
    launches = tuple(_launch(i, action, ranges) for i, (action, ranges) in enumerate(in_order))
    attribute = "device__attribute_compute_capability"
    parts = [number(in_order[0][0], f"{attribute}_{part}") for part in ("major", "minor")]
    capability = "" if None in parts else ".".join(str(int(part or 0)) for part in parts)
    gpus = tuple(dict.fromkeys(launch.gpu for launch in launches if launch.gpu))
    version = ""
    options: dict[str, str] = {}
    for piece in chunks(path):
        if not version and (match := _VERSION.search(piece)):
            version = match[1].decode()
        if not options and (match := _COMMAND.search(piece)):
            options = parse_options(match[1].decode("ascii", "replace"))
    return Report(path, launches, gpus, capability, version, options)


def chunks(path: Path) -> Iterator[bytes]:
    """The uncompressed content in overlapping pieces, so that no text is cut in two."""
    kept = b""
    for piece in decompressed_pieces(path):
        yield kept + piece
        kept = piece[-OVERLAP:]


def parse_options(command: str) -> dict[str, str]:
    """The options of ``OPTIONS`` in an ncu command line, in either spelling."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    options: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, sign, value = word.partition("=")
        if name in OPTIONS and (sign or following):
            options.setdefault(name, value if sign else following)
    return options


def pick_kernel(report: Report, name: str) -> tuple[Launch, ...]:
    """The launches of a kernel: by its name, else by a part of its signature. Raises UsageError."""
    exact = tuple(launch for launch in report.launches if launch.kernel == name)
    launches = exact or tuple(launch for launch in report.launches if name in launch.signature)
    if not launches:
        kernels = list(dict.fromkeys(launch.kernel for launch in report.launches))
        raise UsageError(
            f"{report.name} has no launch of a kernel '{name}'", hint=nearest(name, kernels)
        )
    return launches


def pick_launch(report: Report, index: int) -> tuple[Launch, ...]:
    """Raises UsageError for an index that the report has not."""
    if not 0 <= index < len(report.launches):
        last = len(report.launches) - 1
        raise UsageError(
            f"{report.name} has no launch {index}",
            hint=f"launches count from 0 to {last}" if last else "its only launch is 0",
        )
    return (report.launches[index],)
