"""The verbs for scripts and notebooks: ``import workbench as wb``. See docs/library.md.

Results are the engine's own objects, which can show themselves. Errors are ``workbench.errors``.
Nothing is printed, no progress is shown, and no report is written.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from glob import glob
from inspect import Parameter, Signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from workbench.app import ablate as ladders
from workbench.app import sweep as spaces
from workbench.app import try_ as trying
from workbench.app.executor import Local
from workbench.app.show import (
    Metric,
    ReportPairResult,
    compared_reports,
    current_capture,
    report_lines,
    report_metric,
    require_pairs,
)
from workbench.app.show import read as read_launch
from workbench.app.target import Target, find_recorded, find_study, find_target
from workbench.app.try_ import Attempt, cache
from workbench.cli.diff import blocks as diff_blocks
from workbench.cli.options import DiffOptions, TryOptions
from workbench.cli.try_ import blocks as try_blocks
from workbench.derive.figures import Figure
from workbench.derive.matching import groups
from workbench.derive.source_diff import SourceDiff
from workbench.errors import EnvironmentLacks, UsageError, unknown
from workbench.judge.advice_rules import Advice, to_try
from workbench.judge.ladder import Ablation, VariantPair
from workbench.judge.rows import Row
from workbench.judge.sweeps import Sweep
from workbench.ncu.capture import MetricValue
from workbench.ncu.catalog import catalog
from workbench.ncu.report_file import Launch, Report, is_report, pick_launch, read_report
from workbench.render import as_json, as_table, doc, markdown, page
from workbench.render.chart.charts import CHARTS, chart, charts
from workbench.render.chart.svg import Drawing
from workbench.render.document import launches, variant
from workbench.render.document.advice import CATALOGUE, spot
from workbench.render.document.combinations import sweep_view
from workbench.render.document.launches import Details
from workbench.render.document.printed_ladder import Where, answer, ladder_table, origin, warnings
from workbench.run import machine
from workbench.study.files import write_bytes
from workbench.study.model import Study

if TYPE_CHECKING:
    import pandas as pd

    from workbench.load import VariantEvidence
    from workbench.ncu.capture import Capture

Project = str | Path | None


def ablate(
    *names: str,
    study: str | None = None,
    shape: str | None = None,
    project: Project = None,
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
    project: Project = None,
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
    project: Project = None,
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
    name: str, *, study: str | None = None, shape: str | None = None, project: Project = None
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
    project: Project = None,
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


def study(name: str | None = None, *, project: Project = None) -> OpenStudy:
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


def _folder(project: Project) -> Path | None:
    return None if project is None else Path(project)


REPR_LINES = 3
STYLE = """<style>
.workbench .hidden { display: none }
.workbench .scroll { overflow-x: auto }
.workbench table { border-collapse: collapse }
.workbench td, .workbench th { text-align: left; padding: 0.2em 0.7em; vertical-align: top }
.workbench .n { text-align: right }
.workbench small { display: block; opacity: 0.75 }
.workbench .warning { border-left: 3px solid #c60; padding-left: 1em }
</style>"""


class OfRecord:
    """Made of a record of the engine, whose subclass it is."""

    @classmethod
    def of(cls, record: Any, **more: Any) -> Self:
        return cls(**{each.name: getattr(record, each.name) for each in fields(record)}, **more)


class Shown(OfRecord):
    """Shows itself at a prompt as what the verb would print, in a notebook with its charts."""

    def _blocks(self) -> Sequence[doc.Block]:
        raise NotImplementedError

    def table(self) -> pd.DataFrame:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        inside = page.Writer({}, as_images=True).blocks(self._blocks(), level=4)
        return f'<div class="workbench">{STYLE}\n{inside}\n</div>'

    def __repr__(self) -> str:
        """The first lines of prose, without the marks of Markdown, tables and lists."""
        text = re.sub(r"\*\*|[`\\]|^#+ ", "", self._repr_markdown_(), flags=re.MULTILINE)
        prose = [each for each in text.splitlines() if each and each[0] not in "|<->"]
        return "\n".join([*prose[:REPR_LINES], "more: .table(), print(result._repr_markdown_())"])

    def _repr_markdown_(self) -> str:
        return markdown.blocks([b for b in self._blocks() if not isinstance(b, doc.Chart)])


@dataclass(frozen=True, repr=False)
class Ablated(Shown, Ablation):
    """A judged ladder. ``failures`` are what failed of it just now, by variant."""

    failures: Mapping[str, str] = field(default_factory=dict)

    def table(self) -> pd.DataFrame:
        """One row a variant: the columns of the ladder by their keys in JSON, with their units."""
        return as_table.variants(self)

    def plot(self, kind: str = "times") -> Drawing:
        """Return the chart of the report of a kind: ``times``, ``sizes``, ``roofline`` or
        ``stall-time``.

        Raises UsageError for any other kind.
        """
        if kind not in CHARTS:
            raise unknown("chart", kind, CHARTS)
        return chart(kind, self)

    def _blocks(self) -> Sequence[doc.Block]:
        table = ladder_table(self, Where.REPORT, name="variants")  # without buttons
        head: list[doc.Block] = [doc.paragraph(answer(self)), table]
        return [*head, *doc.warned(warnings(self)), *charts(self)]


@dataclass(frozen=True, repr=False)
class TriedSource(Shown, Attempt):
    """The outcome of a source that was tried."""

    @property
    def ladder(self) -> Ablated:
        """Return what was tried, and what it was compared with.

        Raises EnvironmentLacks where nothing could be measured.
        """
        if self.judged is None:
            why = machine.why_not_measuring()
            raise EnvironmentLacks(f"nothing was measured: {why.message}", hint=why.hint)
        return Ablated.of(self.judged, failures=self.failures)

    def table(self) -> pd.DataFrame:
        """One row a variant, as of a ladder. Raises EnvironmentLacks."""
        return self.ladder.table()

    def _blocks(self) -> Sequence[doc.Block]:
        """Return what the verb prints, and the charts of the ladder."""
        parts = try_blocks(self, TryOptions(self.problem.title))
        charts = self.ladder._blocks() if self.judged else ()
        return [*parts, *(block for block in charts if isinstance(block, doc.Chart))]

    def plot(self, kind: str = "times") -> Drawing:
        """Return a chart, as of a ladder. Raises EnvironmentLacks."""
        return self.ladder.plot(kind)


@dataclass(frozen=True, repr=False, kw_only=True)
class ProfiledVariant(Shown, Row):
    """One variant of ``ladder``, with the figures of its capture."""

    ladder: Ablation

    def table(self) -> pd.DataFrame:
        """One row a figure, by its id in ``metrics.toml``."""
        return as_table.figures(self.figures)

    def _blocks(self) -> Sequence[doc.Block]:
        return [origin(self.ladder), variant.variant(self, self.ladder)]


@dataclass(frozen=True, repr=False, kw_only=True)
class ComparedVariants(Shown, VariantPair):
    """Two variants of ``ladder``, and the diff of their sources with what lines cost."""

    ladder: Ablation
    changes: SourceDiff

    def table(self) -> pd.DataFrame:
        """One row a figure, before and after."""
        before, after = map(as_table.figures, (self.before.figures, self.after.figures))
        return before.add_suffix("_before").join(after.add_suffix("_after"), how="outer")

    def _blocks(self) -> Sequence[doc.Block]:
        pair = launches.variants(self, self.changes, source=False)
        return [origin(self.ladder), *pair]


@dataclass(frozen=True, repr=False)
class ComparedReports(Shown, ReportPairResult):
    """Two reports, with the launches that match."""

    def table(self) -> pd.DataFrame:
        """One row a figure of each matching kernel, before and after."""
        typical = [group.typical for group in self.matching.groups]
        read = ((pair.after.kernel, self.read(pair)) for pair in typical)
        rows = (
            {"figure": key, "kernel": kernel, "before": was.value, "after": now.value}
            | {"unit": now.unit}
            for kernel, pair in read
            for key, now in pair.after.figures.items()
            if (was := pair.before.figures.get(key)) is not None
        )
        return as_table.frame(rows, "figure")

    def _blocks(self) -> Sequence[doc.Block]:
        return list(diff_blocks(self, DiffOptions(self.before.name, self.after.name)))


class Advised(tuple[Advice, ...]):
    """A list of changes to try next, the best first."""

    def __repr__(self) -> str:
        """One line a change, as ``show`` begins."""
        parts = [(CATALOGUE[x.change].title, doc.plain(spot(x.spot))) for x in self]
        return "\n".join(f"{n}. {', '.join(each)}" for n, each in enumerate(parts, start=1))

    def table(self) -> pd.DataFrame:
        """One row a change: its kind, limit, metric, and line."""
        return as_table.advised(self)


@dataclass(frozen=True, repr=False)
class Swept(Shown, Sweep):
    """All combinations of a variant's parameters."""

    def table(self) -> pd.DataFrame:
        """One row a combination."""
        return as_table.frame(map(as_json.shown_fields, self.combinations), "variant")

    def _blocks(self) -> Sequence[doc.Block]:
        return sweep_view(self)


@dataclass(frozen=True, repr=False)
class ReadReport(Shown, Report):
    """A report file. A launch is named by its number, from 0."""

    def table(self) -> pd.DataFrame:
        """One row a launch."""
        return as_table.frame(map(as_table.launch_row, self.launches), "index")

    def capture(self, launch: int = 0) -> Capture:
        """All of a launch: ``metrics``, ``lines``, ``rules``. Raises UsageError."""
        return self._read(launch)[0]

    def details(self, launch: int = 0) -> Details:
        """Figures, stalls, occupancy limiters and bottlenecks of a launch. Raises UsageError."""
        return self._read(launch)[1]

    def figures(self, launch: int = 0) -> pd.DataFrame:
        """One row a figure of a launch, by its id. Raises UsageError."""
        return as_table.figures(self.details(launch).figures)

    def lines(self, launch: int = 0) -> pd.DataFrame:
        """One row a source line of a launch, the hottest first. Raises UsageError."""
        (picked,) = pick_launch(self, launch)
        return as_table.source_lines(report_lines(self, picked, sass=False).files)

    def metric(self, name: str, launch: int = 0) -> Metric:
        """Any metric of a launch by NVIDIA's name. Raises UsageError for one that it lacks."""
        try:
            return report_metric(self, pick_launch(self, launch), name)
        except UsageError as error:
            figures = get_close_matches(name, catalog(), cutoff=0.4)
            also = f" `figures({launch})` has {', '.join(figures)}" if figures else ""
            raise UsageError(error.message, hint=error.hint + also) from error

    def values_of(self, path: str, names: Sequence[str]) -> Iterator[dict[str, object]]:
        """The rows of ``ReadReports.metrics`` that are of this report."""
        for name in names:
            values: list[tuple[Launch, Figure | MetricValue | None]] = []
            if name in catalog():
                of = ((x, self.details(x.index).figures) for x in self.launches)
                values = [(launch, figures.get(name)) for launch, figures in of]
            else:
                with suppress(UsageError):  # one that this report lacks
                    read = report_metric(self, self.launches, name).metrics
                    values = [(self.launches[value.launch], value) for value in read]
            for launch, value in values:
                if value is not None:
                    row = {"report": path, "launch": launch.index, "kernel": launch.kernel}
                    yield row | {"metric": name, "value": value.value, "unit": value.unit}

    def _read(self, launch: int) -> tuple[Capture, Details]:
        (picked,) = pick_launch(self, launch)
        if launch not in self._opened:
            self._opened[launch] = read_launch(self, picked)
        return self._opened[launch]

    @cached_property
    def _opened(self) -> dict[int, tuple[Capture, Details]]:
        return {}

    def _blocks(self) -> Sequence[doc.Block]:
        kernels = groups(self.launches)
        shown = kernels[: launches.DETAILED]
        details = [launches.details(self.details(g.typical.index), len(g.launches)) for g in shown]
        return [launches.about(self), launches.group_table(kernels), *details]


class ReadReports(dict[str, ReadReport]):
    """Reports by their path."""

    def __repr__(self) -> str:
        """The paths."""
        return "\n".join([*self, "more: .table(), .metrics([...])"])

    def table(self) -> pd.DataFrame:
        """One row a launch of every report."""
        return as_table.frame(
            (
                {"report": path, **as_table.launch_row(launch)}
                for path, report in self.items()
                for launch in report.launches
            ),
            "report",
        )

    def metrics(self, names: Sequence[str]) -> pd.DataFrame:
        """One row a launch and metric of every report: ``report``, ``launch``, ``kernel``,
        ``metric``, ``value``, ``unit``. A name is NVIDIA's, or the id of a figure such as
        ``achieved_occupancy``. What a report lacks has no row.

        Raises UsageError for a name that no report has.
        """
        rows = [row for path, report in self.items() for row in report.values_of(path, names)]
        for name in names:
            if not any(row["metric"] == name for row in rows):
                raise UsageError(
                    f"no report has the metric '{name}'",
                    hint=f"`workbench show {next(iter(self))} --metric {name}` names similar ones",
                )
        return as_table.frame(rows, "report")


@dataclass(frozen=True, repr=False)
class OpenStudy(OfRecord, Study):
    """A study of the workspace at ``project``, or of the one around the current folder."""

    project: Path | None = None

    def __repr__(self) -> str:
        """One line; the study's module is a field."""
        return f"study {self.name}: {len(self.shapes)} shapes, {len(self.variants)} variants"

    def evidence(self, shape: str | None = None, gpu: str | None = None) -> RecordedEvidence:
        """Return what is recorded at a shape, the default one without a name: of that ``gpu``, else
        of this machine's, else of the workspace's, else of the newest. Raises UsageError, and
        EnvironmentLacks where there is none.
        """
        target = find_recorded(Local(), self.project, self.name, shape, gpu=gpu)
        return RecordedEvidence(target)


@dataclass(frozen=True)
class RecordedEvidence:
    """The evidence of a study at one shape on one GPU; nothing is measured."""

    target: Target = field(repr=False)

    @cached_property
    def variants(self) -> Mapping[str, VariantEvidence]:
        """Build, checks and capture of every variant of the study, with their ``state``."""
        return self.target.load(captures=True).variants

    @cached_property
    def ladder(self) -> Ablated:
        return Ablated.of(ladders.judged(self.target)[0])


PLAIN = (bool, int, float, complex, str, bytes, type(None))


def source_of(function: Callable[..., Any]) -> str:
    """Return ``FILE:FUNCTION`` for a function: its own file, or for one that was typed into a
    notebook a file with it and all that it names there, written into the user's cache.

    Raises UsageError for what has no source, and for a value that cannot be written down.
    """
    plain = inspect.unwrap(getattr(function, "fn", function))
    name = getattr(plain, "__qualname__", "")
    if not name.isidentifier():
        raise UsageError(
            f"{name or function!r} is no function of a module", hint="define it with def, outermost"
        )
    module = inspect.getmodule(plain)
    if module is not None and module.__name__ != "__main__" and module.__file__:
        return f"{module.__file__}:{name}"
    text = _Cells(plain.__globals__).text_of(plain)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = cache() / "notebook" / f"{name}-{digest}" / f"{name}.py"
    write_bytes(path, text.encode())
    return f"{path}:{name}"


class _Cells:
    """Collects definitions of a notebook, each after those that it names."""

    def __init__(self, names: dict[str, object]) -> None:
        self.names = names
        self.imports: dict[str, None] = {}
        self.definitions: dict[str, str] = {}

    def text_of(self, function: Any) -> str:
        self._define(function.__name__, function)
        return "\n".join([*self.imports, "", "", *self.definitions.values()])

    def _define(self, name: str, value: Any) -> None:
        try:
            text = textwrap.dedent(inspect.getsource(getattr(value, "fn", value)))
        except (OSError, TypeError) as error:
            raise UsageError(
                f"{name} has no source: {error}", hint="write it to a file: %%writefile"
            ) from error
        self.definitions[name] = ""  # which may name itself
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and node.id in self.names:
                self._need(node.id, self.names[node.id])
        del self.definitions[name]
        self.definitions[name] = f"{text}\n"

    def _need(self, name: str, value: Any) -> None:
        if name in self.definitions:
            return
        module = getattr(value, "__module__", None)
        if isinstance(value, ModuleType):
            self.imports[f"import {value.__name__} as {name}"] = None
        elif isinstance(value, PLAIN):
            self.definitions[name] = f"{name} = {value!r}\n"
        elif repr(value).startswith("torch."):  # a dtype or a layout
            self.imports["import torch"] = None
            self.definitions[name] = f"{name} = {value!r}\n"
        elif hasattr(value, "__qualname__") and module and module != "__main__":
            self.imports[f"from {module} import {value.__qualname__} as {name}"] = None
        elif hasattr(value, "__name__") and module == "__main__":
            self._define(name, value)
        else:
            raise UsageError(
                f"{name} is a value of type {type(value).__name__}, which no file can hold",
                hint="make it inside of the function, or pass it as an input",
            )


_TRY_OPTIONS = {field.name: field for field in fields(trying.AttemptOptions)}
try_.__signature__ = Signature(  # type: ignore[attr-defined]  # for whoever completes at a prompt
    [
        Parameter("source", Parameter.POSITIONAL_OR_KEYWORD),
        *(Parameter(n, Parameter.KEYWORD_ONLY, default=f.default) for n, f in _TRY_OPTIONS.items()),
    ],
    return_annotation=TriedSource,
)
