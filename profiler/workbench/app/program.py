"""Any program under ncu: one run lists its kernels by time, a second profiles the first of them.
With ``--keep NAME`` a commit or a build of it is timed too, and kept as a variant of a study.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
from msgspec import structs

from workbench.app.show import ReportResult, read
from workbench.children import ended, temporary_folder
from workbench.derive.matching import LaunchGroup, groups
from workbench.derive.timeline import CallTimeline, LaunchTimeline, call_timeline
from workbench.errors import (
    CannotTell,
    EnvironmentLacks,
    GateFailed,
    Interrupted,
    ToolFailed,
    UsageError,
    WorkbenchError,
    nearest,
)
from workbench.judge.advice_rules import faults
from workbench.judge.findings import Finding
from workbench.judge.program_variants import ProgramStep, ProgramStudy, ProgramVariant, steps
from workbench.ncu import command as ncu
from workbench.ncu.command import quoted
from workbench.ncu.report_file import (
    SUFFIXES,
    Launch,
    Report,
    pick_kernel,
    pick_launch,
    read_report,
)
from workbench.run import iket, machine
from workbench.run.machine import NVML_PACKAGE, why_none
from workbench.run.process import NCU_LOG, ProgramEnd, run_program
from workbench.run.repository import repository_of
from workbench.study.config import Profiler
from workbench.study.files import contents, json_as_type, write_bytes
from workbench.study.workspace import Workspace

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


@dataclass(frozen=True)
class ProgramResult:
    """A program that ran under ncu: the kernels that it launched, those of ``full`` with all that
    ncu collects. ``missing`` were to be there. ``failure`` is how the program ended, "" where well.
    ``sessions`` are the launches of each run that timed them, ``steps`` the study that it is of.
    """

    command: tuple[str, ...]
    listed: Sequence[LaunchGroup]
    is_cut: bool
    missing: tuple[str, ...]
    failure: str
    interrupted: bool
    full: ReportResult
    sessions: tuple[Sequence[Launch], ...] = ()
    steps: tuple[ProgramStep, ...] = ()


@dataclass(frozen=True)
class TracedProgram:
    """A program that ran under iket: when the warps of its kernels ran, in their last launches.
    ``files`` are a trace that Perfetto opens, and a chart.
    """

    program: tuple[str, ...]
    files: tuple[Path, ...]
    timeline: tuple[LaunchTimeline, ...]
    faults: tuple[Finding, ...]


def profile_program(
    command: Sequence[str], settings: Profiler, tell: Tell, asked: KernelChoice, sessions: int = 0
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
            if end.interrupted:
                raise Interrupted("interrupted in the first run: nothing was profiled")
            if not report.is_file():
                raise without_report(command, end, "ncu saw no kernel")
            return read_report(report), end

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


def subject(command: Sequence[str]) -> Path:
    """``train.py`` of ``python train.py``: what PATH has runs a file."""
    files = (Path(part) for part in command[1:] if not part.startswith("-"))
    first = Path(command[0])
    return first if os.sep in command[0] else next((f for f in files if f.is_file()), first)


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


FOLDER, FILE = "programs", "study.json"
FIGURES = ("memory_pct", "compute_pct", "achieved_occupancy", "registers")  # of its first kernel


def keep_program(
    workspace: Workspace,
    name: str,
    command: Sequence[str],
    tell: Tell,
    asked: KernelChoice,
    *,
    build: str | None = None,
    check: str | None = None,
) -> ProgramResult:
    """Build, check, time and profile one variant, and judge it beside those that are kept already.

    Raises UsageError for another command, GateFailed where the check fails; then nothing is kept.
    """
    study = require_study(workspace, name, command, check)
    variant = build or commit_of(workspace)
    for what, text in (("--build", build), ("--check", study.check)):
        if text:
            tell(f"{what}: {text}")
            run_shell(what, text)
    folder = workspace.root / FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    to = free_path(folder / re.sub(r"\W+", "-", variant).strip("-")[:40])
    config = workspace.config
    sessions = config.timing.sessions
    result = profile_program(command, config.profiler, tell, replace(asked, to=to), sessions)
    report, first = result.full.report, result.full.groups[0].typical
    figures = read(report, first)[1].figures
    kept = ProgramVariant(
        variant=variant,
        gpu=first.gpu,
        report=report.path.name,
        sessions=tuple(map(totals, result.sessions)),
        kernel=first.kernel,
        figures={key: figures[key].value for key in FIGURES if key in figures},
    )
    if not (result.failure or result.interrupted):
        # At its place if it was kept before, else as the last one.
        names = [each.variant for each in study.variants]
        place = names.index(variant) if variant in names else len(names)
        variants = (*study.variants[:place], kept, *study.variants[place + 1 :])
        study = replace(study, variants=variants)
        write_bytes(folder / FILE, msgspec.json.format(msgspec.json.encode(study)) + b"\n")
    return replace(result, steps=tuple(steps(study, workspace.config.gates)))


def require_study(
    workspace: Workspace, name: str, command: Sequence[str], check: str | None
) -> ProgramStudy:
    """The one of that name, or a new one. Raises UsageError where it is of another program."""
    path = workspace.root / FOLDER / name / FILE
    if not path.exists():
        return ProgramStudy(command=tuple(command), check=check or "")
    try:
        study: ProgramStudy = json_as_type(contents(path), ProgramStudy)
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {error}", hint="delete it, and keep anew") from None
    for what, kept, asked in (
        ("program", study.command, tuple(command)),
        ("--check", study.check, study.check if check is None else check),
    ):
        if kept != asked:
            text = kept if isinstance(kept, str) else " ".join(kept)
            raise UsageError(
                f"the {what} of {name} is `{text}`", hint="name another study with --keep"
            )
    return study


def commit_of(workspace: Workspace) -> str:
    """The commit that is checked out. Raises UsageError where files differ from it."""
    repository = repository_of(workspace)
    if repository.git("status", "--porcelain", "--untracked-files=no").strip():
        raise UsageError(
            "a variant is a commit, and files here differ from it",
            hint="commit them, or name what builds the program: --build 'make FAST=1'",
        )
    return repository.commit("HEAD").short


def run_shell(what: str, text: str) -> None:
    """Raises ToolFailed where a build fails, GateFailed where a check does."""
    with TemporaryFile("w+", errors="replace") as out:
        code = ended(["sh", "-c", text], None, stdout=out, stderr=out)
        out.seek(0)
        printed = out.read()
    if code:
        said = quoted(printed) or next(iter(printed.strip().splitlines()[-1:]), "no output")
        kind = ToolFailed if what == "--build" else GateFailed
        raise kind(f"{what} ended with exit code {code}: {said}", hint=f"run it: {text}")


def totals(launches: Sequence[Launch]) -> tuple[float, float | None]:
    """Microseconds and kilocycles of all launches. Raises ToolFailed where ncu timed none."""
    timed = [(x.microseconds, x.sm_clock_ghz) for x in launches if x.microseconds]
    if not timed:
        raise ToolFailed("ncu timed no launch", hint="`workbench doctor` checks ncu")
    cycles = [time * clock for time, clock in timed if clock]
    return sum(time for time, _ in timed), sum(cycles) if len(cycles) == len(timed) else None


def trace_program(command: Sequence[str], tell: Tell, kernel: str | None) -> TracedProgram:
    """Run ``command`` once under iket: when the warps of its longest kernels ran, or of those that
    are named, each in its last launch. Raises WorkbenchError.
    """
    from workbench.render.chart.charts import TRACE, timeline_chart

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
    from workbench.render.chart.charts import TRACE, perfetto

    path = free_path(stem, TRACE)
    write_bytes(path, perfetto(call))
    return path
