"""The verbs for scripts and notebooks: ``import workbench as wb``. See docs/library.md.

Results are the engine's own objects, which a notebook shows. Errors are ``workbench.errors``.
Nothing is printed, no progress is shown, and no report is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from glob import glob
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from workbench.app import judge as ladders
from workbench.app import sweep as spaces
from workbench.app import try_ as trying
from workbench.app.executor import Local
from workbench.app.show import compared_reports, current_capture, require_pairs
from workbench.app.target import find_recorded, find_study, find_target
from workbench.errors import UsageError, unknown
from workbench.judge.advice_rules import to_try
from workbench.library.results import (
    Ablated,
    Advised,
    ComparedReports,
    ComparedVariants,
    OpenStudy,
    ProfiledVariant,
    ReadReport,
    ReadReports,
    Swept,
    TriedSource,
    source_of,
)
from workbench.ncu.report_file import is_report, read_report

Where = str | Path | None


def ablate(
    *names: str,
    study: str | None = None,
    shape: str | None = None,
    project: Where = None,
    fresh: bool = False,
    profile: bool = True,
) -> Ablated:
    """``workbench ablate``: measure what is missing of the ladder up to the named steps, all of it
    without a name, and judge it. What failed is in ``failures``. Raises WorkbenchError; where ncu
    could not profile, times are recorded, and ``profile=False`` returns them.
    """
    for name in names:
        if not isinstance(name, str):
            raise UsageError(
                f"a name is text, not {name!r}", hint='name each: ablate("fix1", "fix2")'
            )
    target = find_target(Local(), _folder(project), study, shape, names=names)
    ((ladder, failures),) = ladders.ablate([target], list(names), fresh=fresh, profile=profile)
    target.executor.require_profiled()
    return Ablated.of(ladder, failures=failures)


def profile(
    name: str,
    *,
    study: str | None = None,
    shape: str | None = None,
    project: Where = None,
    fresh: bool = False,
) -> ProfiledVariant:
    """``workbench profile``: a variant, with all figures of its capture. Raises WorkbenchError."""
    target = find_target(Local(), _folder(project), study, shape, names=[name])
    (full,) = target.variants([name])
    ladder, _ = ladders.profile(target, [full], fresh=fresh)
    target.executor.require_profiled()
    return ProfiledVariant.of(ladder.row(full), ladder=ladder)


def diff(
    before: str,
    after: str,
    *,
    study: str | None = None,
    shape: str | None = None,
    project: Where = None,
) -> ComparedVariants | ComparedReports:
    """``workbench diff`` of two variants, by recorded evidence, or of two reports.

    Raises WorkbenchError.
    """
    if is_report(before) and is_report(after):
        reports = compared_reports(read_report(Path(before)), read_report(Path(after)))
        require_pairs(reports.matching)
        return ComparedReports.of(reports)
    target = find_recorded(Local(), _folder(project), study, shape, names=[before, after])
    names = target.variants([before, after])
    sides = ladders.compared(target, names)
    return ComparedVariants.of(sides.pair, ladder=sides.ladder, changes=sides.changes)


def advise(
    name: str, *, study: str | None = None, shape: str | None = None, project: Where = None
) -> Advised:
    """``workbench advise``: what to try next, the best first. Raises WorkbenchError."""
    target = find_recorded(Local(), _folder(project), study, shape, names=[name])
    (full,) = target.variants([name])
    current_capture(target, full)
    return Advised(to_try(ladders.judged_variant(target, full).row.advice) or ())


def sweep(
    variants: str,
    *,
    study: str | None = None,
    shape: str | None = None,
    project: Where = None,
    fresh: bool = False,
) -> Swept:
    """``workbench sweep 'NAME[a=1|2]'`` at one shape; no file is written. Raises WorkbenchError."""
    target = find_target(Local(), _folder(project), study, shape)
    target.study, picked = spaces.space_of(target.study, variants)
    return Swept.of(spaces.sweep(target, picked, fresh=fresh))


def read(path: str | Path) -> ReadReport:
    """Anyone's Nsight Compute report: its launches, and ``capture(launch)`` for all of one.

    Raises UsageError, BadCapture.
    """
    return ReadReport.of(read_report(Path(path)))


def read_all(pattern: str) -> ReadReports:
    """Every Nsight Compute report that a pattern names, such as ``"**/*.ncu-rep*"``, by its path.

    Raises UsageError where there is none, BadCapture.
    """
    named = glob(pattern, recursive=True)  # noqa: PTH207  # of Path takes no absolute pattern
    paths = sorted(path for path in named if is_report(path))
    if not paths:
        hint = f"the pattern is looked for in {Path.cwd()}"
        raise UsageError(f"no Nsight Compute report is named by '{pattern}'", hint=hint)
    return ReadReports((path, read(path)) for path in paths)


def study(name: str | None = None, *, project: Where = None) -> OpenStudy:
    """A study of the workspace, by its name or the only one; ``evidence()`` is what is recorded.

    Raises UsageError.
    """
    _, chosen = find_study(Local(), _folder(project), name)
    return OpenStudy.of(chosen, project=_folder(project))


def try_(source: str | Path | Callable[..., Any], **options: Any) -> TriedSource:
    """``workbench try`` of ``FILE``, ``FILE:FUNCTION`` or a function, also one of a notebook; no
    workspace is needed. Options as of the verb: ``versus="torch.softmax"``, ``inputs=["n=8192"]``
    and the others of ``workbench.app.try_.AttemptOptions``. Raises WorkbenchError, GateFailed where
    the function is wrong, inaccurate or failed.
    """
    for option in options:
        if option not in _TRY_OPTIONS:
            raise unknown("option of try_()", option, _TRY_OPTIONS)
    named = source_of(source) if callable(source) else str(source)
    done = trying.attempt(Local(), named, trying.AttemptOptions(**options))
    if no := trying.refusal(done):
        raise no
    return TriedSource.of(done)


_TRY_OPTIONS = {field.name: field for field in fields(trying.AttemptOptions)}
try_.__signature__ = Signature(  # type: ignore[attr-defined]  # for whoever completes at a prompt
    [
        Parameter("source", Parameter.POSITIONAL_OR_KEYWORD),
        *(Parameter(n, Parameter.KEYWORD_ONLY, default=f.default) for n, f in _TRY_OPTIONS.items()),
    ],
    return_annotation=TriedSource,
)


def _folder(project: Where) -> Path | None:
    return None if project is None else Path(project)
