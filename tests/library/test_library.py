"""``import workbench as wb``: the verbs for scripts and notebooks, their results as shown there."""

from __future__ import annotations

import html
import inspect
import linecache
import re
import shutil
import traceback
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import workbench as wb
from answers import Capsys, Patch, not_none, python
from pages import Outline
from workbench.app.ablate import judged as judged_of
from workbench.app.executor import Executor, Local
from workbench.app.target import find_target
from workbench.app.try_ import Attempt, AttemptOptions
from workbench.app.try_ import attempt as once
from workbench.errors import BadCapture, EnvironmentLacks, Interrupted, UsageError, WorkbenchError
from workbench.judge.ladder import Ablation
from workbench.judge.rows import Row
from workbench.library import Shown
from workbench.ncu.report_file import Report
from workbench.render.chart.charts import CHARTS, chart_files
from workbench.study.model import Study
from workspaces import CAUSAL, EVIDENCE, FIXTURE, copy_of_fixture, recorded_report, rewrite

REPORT = recorded_report(CAUSAL, "fix10")


@pytest.fixture(scope="module")
def ladder() -> Any:
    return wb.ablate("fix2", project=FIXTURE)


def test_importing_it_loads_no_verb() -> None:
    code = (
        "import sys, workbench as wb; wb.Shape(n=1); wb.study; import workbench.study.model;"
        "print([m for m in ('pandas', 'torch', 'typer', 'rich', 'workbench.library') "
        "if m in sys.modules])"
    )
    assert python("-c", code).stdout.strip() == "[]"
    assert {"ablate", "profile", "read", "study", "try_"} <= set(dir(wb))
    with pytest.raises(AttributeError, match="no attribute 'abalte'"):
        wb.abalte  # type: ignore[attr-defined] # noqa: B018


def test_ablate_gives_the_engines_ladder(ladder: Any, capsys: Capsys) -> None:
    assert isinstance(ladder, Ablation)
    assert [row.variant for row in ladder.rows] == ["baseline", "fix1", "fix2"]
    assert getattr(ladder, "failures") == {}  # noqa: B009
    assert capsys.readouterr().out == ""


def test_its_table_has_numbers_with_units_in_their_names(ladder: Any) -> None:
    table = ladder.table()
    assert list(table.index) == [row.variant for row in ladder.everything]
    row = ladder.row("fix1")
    assert table.loc["fix1", "microseconds"] == row.time.value
    assert table.loc["fix1", "speedup_over_parent_low"] == row.over_parent.low
    assert table.loc["fix1", "achieved_occupancy_pct"] == row.figures["achieved_occupancy"].value
    assert table["memory_gb_per_s"].dtype == float
    assert table.loc["fix1", ["verdict", "judged_at"]].to_list() == ["kept", ""]
    assert table.loc["fix1", ["shape", "microseconds_level"]].to_list() == [ladder.shape, 95]
    assert "speedup_over_parent" in table
    assert table["speedup_over_parent"].isna()["baseline"]


def images(shown: Any) -> list[str]:
    """Of what a notebook shows, in which every element is closed."""
    text = re.sub("</(img|source|br)>", "", shown._repr_html_())
    return [image["src"] or "" for image in Outline(text).all("img")]


def test_a_notebook_shows_table_and_charts(ladder: Any) -> None:
    assert images(ladder)
    assert all(image.startswith("data:image/svg+xml;base64,") for image in images(ladder))
    text = ladder._repr_html_()
    assert "tiles of 64 keys in shared memory" in text
    assert "<button" not in text
    assert "http://" not in re.sub(r'src="[^"]*"', "", text)


def test_every_result_has_a_text_and_a_page(ladder: Any) -> None:
    results: list[Shown] = [ladder, wb.profile("fix2", project=FIXTURE), wb.read(REPORT)]
    for result in results:
        images(result)
        *first, more = repr(result).splitlines()  # at a prompt: no table, no wall of fields
        assert first
        assert all(not re.search(r"[|`*]|NaN|nan\b", each) for each in first)
        assert len(first) <= 3
        assert "_repr_markdown_()" in more
        assert "<table" in result._repr_html_()
        assert len(result.table())


def test_text_of_the_user_is_escaped_in_a_notebook(tmp_path: Path) -> None:
    root, text = copy_of_fixture(tmp_path, "attention"), "<script>alert()</script>"
    ladder = root / "ablations" / "attention" / "ablation.toml"
    rewrite(ladder, "tiles of 64 keys in shared memory", text)
    shown = wb.ablate("fix1", project=root)._repr_html_()
    assert "<script" not in shown
    assert html.escape("<script>") in shown


def test_a_profile_is_a_row_with_its_figures() -> None:
    found = wb.profile("fix2", project=FIXTURE)
    assert isinstance(found, Row)
    assert len(found.bottlenecks) == 3
    table = found.table()
    assert table.loc["duration", "metric"] == "gpu__time_duration.sum"
    assert table.loc["duration", "value"] == found.figures["duration"].value
    assert "Bottlenecks" in found._repr_html_() or "bottleneck" in found._repr_html_()


def test_read_gives_launches_and_all_of_one() -> None:
    report = wb.read(REPORT)
    assert isinstance(report, Report)
    table = report.table()
    assert list(table.index) == [launch.index for launch in report.launches]
    assert table.loc[0, "microseconds"] == report.launches[0].microseconds
    assert table.loc[0, "grid"] == "132*1*1"
    capture = report.capture(0)
    assert "gpu__time_duration.sum" in set(capture.metrics["metric"])
    assert report.figures(0).loc["duration", "value"] == report.details(0).figures["duration"].value
    with pytest.raises(UsageError, match="has no launch 999"):
        report.capture(999)


def test_a_study_is_opened_by_name_and_has_its_evidence() -> None:
    study = wb.study("attention", project=FIXTURE)
    assert isinstance(study, Study)
    evidence = study.evidence("b4h16s2048d64")
    assert evidence.target.folder.root == EVIDENCE
    assert evidence.variants["fix10"].state["timing"] == "current"
    assert evidence.ladder.shape == "b4h16s2048d64"


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: wb.ablate("fix99", project=FIXTURE), UsageError, "fix99"),
        (lambda: wb.profile("fix99", project=FIXTURE), UsageError, "fix99"),
        (lambda: wb.study("atention", project=FIXTURE), UsageError, "unknown study 'atention'"),
        (lambda: wb.ablate(project="/nowhere"), UsageError, "no workbench.toml in"),
        (lambda: wb.read("none.ncu-rep"), UsageError, "there is no file"),
    ],
)
def test_errors_are_the_products_own(
    call: Callable[[], object], kind: type[WorkbenchError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        call()
    shown = "".join(traceback.format_exception(caught.value))
    assert caught.value.hint
    assert shown.endswith(f"hint: {caught.value.hint}\n")


def test_a_broken_report_is_a_bad_capture(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"NVR\0" + b"x" * 100)
    with pytest.raises(BadCapture):
        wb.read(path)


def test_interrupted_is_interrupted(monkeypatch: Patch) -> None:
    def stopped(*_: object, **options: object) -> None:
        raise Interrupted

    monkeypatch.setattr("workbench.app.ablate.ensure_each", stopped)
    with pytest.raises(KeyboardInterrupt):
        wb.ablate(project=FIXTURE)


def test_try_hands_over_a_file(tmp_path: Path, trials_here: None, monkeypatch: Patch) -> None:
    target = find_target(Local(), FIXTURE, "transpose", None)
    judged, _ = judged_of(target)
    (tmp_path / "twice.py").write_text("def twice(x):\n    return 2 * x\n")
    asked = AttemptOptions(inputs=["x=randn(8)"])
    called = once(Local(), f"{tmp_path}/twice.py:twice", asked)
    measured = replace(called, judged=judged)
    seen: list[tuple[str, str]] = []

    def attempt(executor: Executor, source: str, asked: AttemptOptions) -> Attempt:
        seen.append((source, asked.versus))
        return measured if asked.versus else called

    monkeypatch.setattr("workbench.app.try_.attempt", attempt)
    done: Any = wb.try_("softmax.py:softmax", versus="torch.softmax")
    assert Attempt in type(done).__mro__
    assert seen == [("softmax.py:softmax", "torch.softmax")]
    assert list(done.table().index)[:2] == ["baseline", "tiled"]
    assert images(done)
    assert "What limits it:" in done._repr_markdown_()
    assert "## What to try next\n" in done._repr_markdown_()
    on_cpu: Any = wb.try_("twice.py:twice")
    assert "twice.py:twice: on the CPU its largest error is" in on_cpu._repr_html_()
    with pytest.raises(EnvironmentLacks):
        on_cpu.table()


NOTEBOOK = """
import math as m

import torch

SCALE = 2.0
KIND = torch.float32

def scaled(x):
    return x.to(KIND) * SCALE * m.sqrt(4.0) / 2

def twice(x):
    return scaled(x)
"""


def notebook(text: str) -> dict[str, Any]:
    """The names of a notebook, whose cell has its text in the line cache and no file."""
    names: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    exec(compile(text, "<cell>", "exec"), names)
    return names


def test_a_function_of_a_notebook_is_tried(trials_here: None) -> None:
    names = notebook(NOTEBOOK)
    tried: Any = wb.try_(names["twice"], inputs=["x=randn(8)"], versus="torch.add(x, x)")
    assert tried.verdict == "correct"


def test_what_no_file_can_hold_is_named() -> None:
    names = notebook("weights = object()\n\ndef f(x):\n    return x, weights\n")
    with pytest.raises(UsageError, match="weights is a value of type object"):
        wb.try_(names["f"])
    with pytest.raises(UsageError, match="no function of a module"):
        wb.try_(lambda x: x)


def test_two_reports_are_compared_and_many_are_one_table(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}{REPORT.suffix}" for name in ("a", "b")]
    for file in files:
        shutil.copy(REPORT, file)
    compared: Any = wb.diff(*map(str, files))
    table = compared.table()
    assert list(table["before"]) == list(table["after"])
    assert "<table" in compared._repr_html_()
    reports = wb.read_all(f"{tmp_path}/*")
    assert len(reports.table()) == 2 * len(wb.read(REPORT).launches)
    values = reports.metrics(["gpu__time_duration.sum", "achieved_occupancy"])
    assert list(values.columns) == ["launch", "kernel", "metric", "value", "unit"]
    assert set(values.index) == set(map(str, files))
    assert (values[values["metric"] == "achieved_occupancy"]["value"] > 0).all()
    with pytest.raises(UsageError, match="no report has the metric 'nosuch'"):
        reports.metrics(["nosuch"])
    with pytest.raises(UsageError, match="no Nsight Compute report is named"):
        wb.read_all(f"{tmp_path}/*.txt")


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda _: wb.ablate(cast(Any, ["fix1"])), 'name each: ablate("fix1", "fix2")'),
        (lambda _: wb.read(REPORT).metric("bank_conflicts"), "shared_conflicts"),
        (lambda _: wb.try_("a.py", vs="torch.softmax"), "did you mean 'versus'?"),
        (lambda ladder: ladder.row("fix22"), "did you mean 'fix2'?"),
        (lambda ladder: ladder.plot("tims"), "did you mean 'times'?"),
    ],
)
def test_what_is_mistaken_has_a_hint(call: Callable[[Any], object], hint: str, ladder: Any) -> None:
    with pytest.raises(UsageError) as error:
        call(ladder)
    assert hint in error.value.hint
    assert list(inspect.signature(wb.try_).parameters)[:3] == ["source", "inputs", "outputs"]


def test_diff_and_advise_are_those_of_the_verbs_and_texts_are_short() -> None:
    compared: Any = wb.diff("fix4", "fix5", study="attention", project=FIXTURE)
    assert not_none(compared.speedup).ratio == pytest.approx(1.09, abs=0.001)
    assert compared.table().loc["duration", "value_after"] == pytest.approx(11.7, abs=0.05)
    ladder = wb.study("attention", project=FIXTURE).evidence().ladder
    for result in (compared, ladder):
        assert 2 <= len(repr(result).splitlines()) <= 4
    advice = wb.advise("fix5", study="attention", project=FIXTURE)
    assert next(iter(advice)).id == "pipe.tensor/tensor"
    assert advice.table().index[0] == "tensor"
    assert advice.table()["share_of_duration"].iloc[0] > 0.1
    assert repr(advice).startswith("1. tensor cores, fix5.cu:")
    assert repr(wb.study("attention", project=FIXTURE)).startswith("study attention: ")
    references = ladder.table()["verdict"][[one.variant for one in ladder.references]]
    assert set(references) == {""}  # no step has a verdict that is NaN


def test_lines_of_a_report_are_hottest_first_and_any_metric_has_a_name() -> None:
    path = sorted((FIXTURE / "ablations" / "attention").rglob("*.ncu-repz"))[0]
    report = wb.read(path)
    samples = list(report.lines()["samples"])
    assert samples == sorted(samples, reverse=True)
    (duration,) = report.metric("gpu__time_duration.sum").metrics
    assert duration.value == pytest.approx(1000 * (report.launches[0].microseconds or 0))
    with pytest.raises(UsageError):
        report.metric("no_such_metric")


def test_a_ladder_is_plotted_as_in_its_report() -> None:
    ladder = wb.study("attention", project=FIXTURE).evidence().ladder
    files, shown = chart_files(ladder), images(ladder)
    for kind in CHARTS:
        drawing = ladder.plot(kind)
        assert drawing.svg("dark") == files[f"{kind}-dark.svg"]
        assert "fix1" in drawing.svg()
        (image,) = images(drawing)
        assert b64decode(image.partition(",")[2]).decode() == drawing.svg()
        assert image in shown
    copies = wb.study("transpose", project=FIXTURE).evidence().ladder
    assert "no floating-point arithmetic" in copies.plot("roofline").svg()
