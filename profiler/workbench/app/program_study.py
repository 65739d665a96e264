"""``profile --keep NAME -- PROGRAM``: times and profiles a commit or a build of a program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from tempfile import TemporaryFile

import msgspec

from workbench.app.program import KernelChoice, Tell, free_path, profile_program
from workbench.app.show import ProgramResult, read
from workbench.children import ended
from workbench.errors import GateFailed, ToolFailed, UsageError
from workbench.judge.program_variants import ProgramStudy, ProgramVariant, steps
from workbench.ncu.command import quoted
from workbench.ncu.report_file import Launch
from workbench.run.repository import repository_of
from workbench.study.files import contents, json_as_type, write_bytes
from workbench.study.workspace import Workspace

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
        study = with_variant(study, kept)
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


def with_variant(study: ProgramStudy, kept: ProgramVariant) -> ProgramStudy:
    """The study with the variant at its place if it was kept before, else as the last one."""
    names = [variant.variant for variant in study.variants]
    place = names.index(kept.variant) if kept.variant in names else len(names)
    variants = (*study.variants[:place], kept, *study.variants[place + 1 :])
    return replace(study, variants=variants)
