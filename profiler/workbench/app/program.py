"""Any program under ncu: one run lists its kernels by time, a second profiles the first of them."""

from __future__ import annotations

import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path

from msgspec import structs

from workbench.app.show import ProgramResult, ReportResult, TracedProgram
from workbench.children import temporary_folder
from workbench.derive.matching import LaunchGroup, groups
from workbench.derive.timeline import CallTimeline, call_timeline
from workbench.errors import (
    CannotTell,
    EnvironmentLacks,
    Interrupted,
    ToolFailed,
    UsageError,
    WorkbenchError,
    nearest,
)
from workbench.judge.advice_rules import faults
from workbench.ncu import command as ncu
from workbench.ncu.report_file import (
    SUFFIXES,
    Launch,
    Report,
    pick_kernel,
    pick_launch,
    read_report,
)
from workbench.render.chart.timelines import TRACE, perfetto, timeline_chart
from workbench.run import iket, machine
from workbench.run.gpu import PACKAGE as NVML_PACKAGE
from workbench.run.gpu import why_none
from workbench.run.under_ncu import NCU_LOG, ProgramEnd, run_program
from workbench.study.config import Profiler
from workbench.study.files import write_bytes

MOST = 5  # kernels that are profiled where none is named
TRACED = 12  # kernels whose warps are shown
LEAST = 0.01  # of all time, for a kernel to be among them
Tell = Callable[[str], None]


@dataclass(frozen=True)
class KernelChoice:
    """Which launches of a program are profiled: of a ``kernel``, or one ``launch``, without the
    first ``skip``; else the kernels with the most time. The report goes ``to`` a file, or beside
    others under the program's name.
    """

    kernel: str | None = None
    launch: int | None = None
    skip: int = 0
    to: Path | None = None


def profile_program(
    command: Sequence[str],
    settings: Profiler,
    tell: Tell,
    asked: KernelChoice,
    sessions: int = 0,
) -> ProgramResult:
    """Run ``command`` twice under ncu, and keep the second run's report. Before that run
    ``sessions``, if any, time the chosen kernels, one of them the first. Raises WorkbenchError for
    what leaves no report.
    """
    require_program(command)
    kept = require_writable(asked.to or free_name(command))
    tool = require_ncu(command)
    with temporary_folder() as folder:
        runs, log = max(sessions, 1) + 1, folder / NCU_LOG
        clocks = settings.clock_control if sessions else ""

        def list_run(number: int) -> tuple[Report, ProgramEnd]:
            report = folder / f"listed{number}.ncu-rep"
            log.unlink(missing_ok=True)
            prefix = ncu.listing(tool, str(report), str(log), clocks)
            end = run_program([*prefix, *command], folder, tell, echo=number == 1)
            return listing(command, report, end), end

        tell(f"run 1 of {runs}: listing the kernels of {shlex.join(command)}")
        listed, end = list_run(1)
        counted = replace(listed, path=subject(command), launches=listed.launches[asked.skip :])
        if not counted.launches:
            count = len(listed.launches)
            raise UsageError(
                f"--skip {asked.skip} leaves none of {count} launches", hint="skip fewer"
            )
        wanted = chosen(counted, listed, asked)
        names = ", ".join(dict.fromkeys(group.typical.kernel for group in wanted))
        timed = [listed]
        for number in range(2, runs):
            tell(f"run {number} of {runs}: timing the kernels again")
            timed.append(list_run(number)[0])
        tell(f"run {runs} of {runs}: profiling {names}")
        report = folder / "profiled.ncu-rep"
        log.unlink(missing_ok=True)
        calls = list(call_numbers(wanted, listed.launches))
        kernels = [group.typical.kernel for group in wanted]
        prefix = ncu.profiling(tool, settings, str(report), str(log), kernels, calls)
        second = run_program([*prefix, *command], folder, tell, echo=False)
        if not report.is_file():
            raise without_report(command, second, "it launched other kernels this time")
        shutil.move(report, kept)  # and then read: ncu_report comes back to the file
    full = read_report(kept)
    return ProgramResult(
        command=tuple(command),
        listed=groups(counted.launches),
        is_cut=len(listed.launches) >= ncu.LISTED,
        missing=() if second.interrupted else tuple(dict.fromkeys(missing(wanted, full))),
        failure=failure(end) or failure(second),
        interrupted=second.interrupted,
        full=ReportResult(full, full.launches),
        sessions=tuple(of_kernel(report, asked) for report in timed),
    )


def require_program(command: Sequence[str]) -> None:
    """Raises UsageError, with the way out, for what no shell would run."""
    if not command:
        raise UsageError("no program stands after --", hint="workbench profile -- ./prog ARGUMENTS")
    name, path = command[0], Path(command[0])
    if shutil.which(name):
        return
    if not path.is_file():
        folder = path.parent if path.parent.is_dir() else Path()
        hint = nearest(path.name, (p.name for p in folder.iterdir() if os.access(p, os.X_OK)))
        raise UsageError(f"there is no program {name}", hint=hint)
    rest = " ".join(map(shlex.quote, command))
    ways = {
        ".py": f"workbench profile -- python {rest}",
        ".cu": f"compile it first: nvcc -O3 -lineinfo -o {shlex.quote(path.stem)} {name}",
        ".sh": f"workbench profile -- bash {rest}",
    }
    here = f"workbench profile -- ./{rest}" if os.access(path, os.X_OK) else ""
    other = here or ways.get(path.suffix) or f"make it executable: chmod +x {shlex.quote(name)}"
    raise UsageError(f"{name} is no program that can be run", hint=other)


def require_ncu(command: Sequence[str]) -> str:
    """Raises EnvironmentLacks without ncu, or where it is certain that there is no GPU."""
    if (tool := machine.find_ncu()) is None:
        raise machine.no_ncu()
    if machine.find_gpu() is None and NVML_PACKAGE not in machine.missing_packages():
        stem = free_name(command).stem
        ran = f"ncu --set full --import-source yes --target-processes all -o {stem}"
        raise EnvironmentLacks(
            f"no NVIDIA GPU was found ({why_none()})",
            hint=f"run this command where there is one; or there `{ran} {shlex.join(command)}`, "
            f"and here `workbench show {stem}.ncu-rep`",
        )
    return tool


def subject(command: Sequence[str]) -> Path:
    """``train.py`` of ``python train.py``: what PATH has runs a file."""
    files = (Path(part) for part in command[1:] if not part.startswith("-"))
    first = Path(command[0])
    return first if os.sep in command[0] else next((f for f in files if f.is_file()), first)


def free_name(command: Sequence[str]) -> Path:
    """``train.ncu-rep`` of ``python train.py``, or ``train-2.ncu-rep`` where that is there."""
    return free_path(Path(subject(command).stem))


def free_path(stem: Path, suffix: str = SUFFIXES[0]) -> Path:
    """A report's name that nothing has."""
    kept, number = stem.with_name(f"{stem.name}{suffix}"), 1
    while kept.exists():
        number += 1
        kept = stem.with_name(f"{stem.name}-{number}{suffix}")
    return kept


def require_writable(path: Path) -> Path:
    """Raises UsageError for a name that is taken, or no report's."""
    if path.suffix not in SUFFIXES[:1]:
        raise UsageError(f"--to {path} is no name of a report", hint=f"such as {path.stem}.ncu-rep")
    if path.exists():
        raise UsageError(f"{path} is there already", hint="name another file with --to")
    if not os.access(path.parent, os.W_OK):
        raise EnvironmentLacks(
            f"no report can be written to {path.parent.resolve()}", hint="--to names another file"
        )
    return path


def listing(command: Sequence[str], report: Path, end: ProgramEnd) -> Report:
    """The launches of the first run. Raises WorkbenchError where there is none."""
    if end.interrupted:
        raise Interrupted("interrupted in the first run: nothing was profiled")
    if not report.is_file():
        raise without_report(command, end, "ncu saw no kernel")
    return read_report(report)


def without_report(command: Sequence[str], end: ProgramEnd, why: str) -> WorkbenchError:
    """Why ncu wrote nothing: it may not, the program failed, or there was no kernel."""
    if end.interrupted:
        raise Interrupted("interrupted in the second run: nothing was profiled")
    if ncu.got_no_counters(end.log) or ncu.got_no_counters(end.output):
        return ncu.failure(end.log + end.output)
    if failed := failure(end):
        text = ncu.quoted(end.output)
        return ToolFailed(
            f"{shlex.join(command)} {failed}, before a kernel ended" + f": {text}" * bool(text),
            hint=f"does it run without ncu? {shlex.join(command)}",
        )
    if ncu.saw_no_kernel(end.log) or not end.log.strip():
        return CannotTell(
            f"{shlex.join(command)} ended well, and {why}",
            hint="does it use the GPU with these arguments? ncu follows its child processes, "
            "and not a server that it only talks to",
        )
    return ncu.failure(end.log)


def failure(end: ProgramEnd) -> str:
    """How the program failed, "" where it did not."""
    code = ncu.application_code(end.log) or end.returncode
    return f"ended with exit code {code}" if code and not end.interrupted else ""


def chosen(counted: Report, listed: Report, asked: KernelChoice) -> list[LaunchGroup]:
    """Return what is profiled: what was asked for, or the kernels with the most time."""
    if asked.launch is not None:
        return groups(pick_launch(replace(listed, path=counted.path), asked.launch))
    if asked.kernel is not None:
        return groups(pick_kernel(counted, asked.kernel))[:MOST]
    kernels = groups(counted.launches)
    least = LEAST * sum(group.microseconds or 0.0 for group in kernels)
    return [g for g in kernels if (g.microseconds or 0.0) >= least][:MOST] or kernels[:MOST]


def of_kernel(listed: Report, asked: KernelChoice) -> Sequence[Launch]:
    """The launches of one run that are timed."""
    counted = replace(listed, launches=listed.launches[asked.skip :])
    return pick_kernel(counted, asked.kernel) if asked.kernel else counted.launches


def call_numbers(wanted: Sequence[LaunchGroup], every: Sequence[Launch]) -> Iterator[int]:
    """Which calls of these kernels are profiled, as few numbers as reach each group. ncu counts the
    calls of a name from 1, templates together. The first of a group is a warm-up: taken if alone.
    """
    counts, number = Counter[str](), dict[int, int]()
    for launch in every:
        counts[launch.kernel] += 1
        number[launch.index] = counts[launch.kernel]
    left = [{number[x.index] for x in group.launches[1:] or group.launches} for group in wanted]
    while left:
        reached = Counter(number for numbers in left for number in numbers)
        tightest = min(left, key=lambda numbers: len(numbers))
        best = min(tightest, key=lambda one: (-reached[one], one))
        left = [numbers for numbers in left if best not in numbers]
        yield best


def missing(wanted: Sequence[LaunchGroup], full: Report) -> Iterator[str]:
    """The kernels that the second run did not launch as the first did."""

    def key(launch: Launch) -> tuple[str, int, int]:  # the first run may have sizes alone
        return launch.signature, prod(launch.grid or ()), prod(launch.block or ())

    there = set(map(key, full.launches))
    for group in wanted:
        if key(group.typical) not in there:
            yield group.typical.kernel


def trace_program(command: Sequence[str], tell: Tell, kernel: str | None) -> TracedProgram:
    """Run ``command`` once under iket: when the warps of its longest kernels ran, or of those that
    are named, each in its last launch. Raises WorkbenchError.
    """
    require_program(command)
    iket.folder()
    if machine.find_gpu() is None and NVML_PACKAGE not in machine.missing_packages():
        raise machine.why_not_measuring()
    tell(f"tracing the warps of {shlex.join(command)}")
    with temporary_folder() as folder:
        output = folder / iket.OUTPUT
        traced = [*iket.command(str(output)), *command]
        end = run_program(traced, folder, lambda _: tell("the program is traced"), echo=False)
        for line in end.output.splitlines():
            if not line.startswith(iket.SAYS):
                tell(line)
        if end.interrupted:
            raise Interrupted("interrupted: nothing was recorded")
        if failed := failure(end):
            hint = f"does it run without iket? {shlex.join(command)}"
            raise ToolFailed(f"{shlex.join(command)} {failed}", hint=hint)
        launches = iket.last_of_each(output, ncu.quoted(end.output), kernel, TRACED)
    sides = {each.kernel: call_timeline([structs.replace(each, begin=0)]) for each in launches}
    wrong = sorted(chain(*map(faults, sides.values())), key=lambda fault: -fault.saved)
    chart = timeline_chart("timeline", f"{shlex.join(command)}; µs while traced", sides)
    trace = write_trace(Path(subject(command).stem), call_timeline(launches))
    path = trace.with_name(f"{trace.name.removesuffix(TRACE)}.svg")
    write_bytes(path, chart.svg().encode())
    return TracedProgram(
        program=tuple(command),
        files=(trace, path),
        timeline=tuple(launch for call in sides.values() for launch in call.launches),
        faults=tuple(fault.why for fault in wrong),
    )


def write_trace(stem: Path, call: CallTimeline) -> Path:
    """Write what Perfetto opens where no file is."""
    path = free_path(stem, TRACE)
    write_bytes(path, perfetto(call))
    return path
