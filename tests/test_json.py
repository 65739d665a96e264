"""The keys of JSON: how many `ablate` has, and that docs/json.md explains those of all records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from workbench.app.bisect import Bisected
from workbench.app.gate import Gated, StudyChanges
from workbench.app.new import NewStep, NewWorkspace
from workbench.app.ship_check import Compared, PackageCheck
from workbench.app.try_ import Attempt, TriedReference
from workbench.cli.main import main
from workbench.derive import factors, figures, largest_changes
from workbench.derive.diff import costs, line_diff
from workbench.derive.roofline import point
from workbench.derive.speedup import Interval, Ratio, Time
from workbench.judge import (
    bottlenecks,
    commits,
    comparison,
    leave_one_out,
    parameter_sweep,
    regimes,
    sessions,
    sizes,
)
from workbench.judge.advice.ranking import KindRecord
from workbench.judge.findings import Finding
from workbench.judge.gates import Accuracy, Gate
from workbench.judge.predictions import PredictionOutcome, Score
from workbench.judge.rows import Row
from workbench.ncu.capture import MetricValue
from workbench.ncu.report_file import Launch, Report
from workbench.render.as_json import shown_names
from workbench.render.document.checks import CheckedStudy, CheckRow, ErrorBound
from workbench.render.document.environment import Save, VariantBuild
from workbench.render.document.listing import EvidenceState, Listed, ListedStudy
from workbench.run.repository import Commit

TESTS = Path(__file__).parent
DOCS = (TESTS.parent / "docs" / "json.md").read_text()
RECORDS = (
    *(regimes.InRegime, regimes.Elsewhere, regimes.AtShape, regimes.AcrossShapes),
    *(
        sizes.AtSize,
        sizes.SizeLine,
        sizes.OverSizes,
        parameter_sweep.Sweep,
        parameter_sweep.Combination,
    ),
    *(leave_one_out.LeftOut, leave_one_out.Worth, leave_one_out.Switch),
    *(sessions.TimingFacts, sessions.Company, sessions.Twin, sessions.Throttling),
    *(commits.VariantChange, commits.TimedPair, commits.SourceSpot, comparison.Difference),
    *(figures.Figure, figures.StallTime, bottlenecks.Bottleneck, bottlenecks.HotLine),
    *(point.Point, point.LevelPoint, point.MeasuredCeiling, point.MeasuredCeilings),
    *(factors.SpeedupFactors, factors.Factor, comparison.Comparison, comparison.RuleChange),
    *(largest_changes.LargestChanges, largest_changes.FigureChange),
    *(
        line_diff.Hunk,
        line_diff.DiffRow,
        line_diff.SourceRow,
        line_diff.Shift,
        costs.Cost,
        costs.InstructionCost,
    ),
    *(Time, Ratio, Interval, Gate, Accuracy, PredictionOutcome, Score, Finding, KindRecord),
    *(Launch, Report, Row, MetricValue),
    *(Attempt, TriedReference, PackageCheck, Compared),
    *(NewWorkspace, NewStep, Gated, StudyChanges, Bisected, Commit, Save, VariantBuild),
    *(Listed, ListedStudy, EvidenceState, CheckRow, CheckedStudy, ErrorBound),
)
MOST = 120
# Objects whose keys are data: regimes, gates, stall reasons, shapes, or what a finding is about.
BY_DATA = ("regimes", "gates", "stalls", "newer", "values")


def names(value: Any, key: str = "") -> set[str]:
    """The keys of all objects that are names of fields."""
    if isinstance(value, list):
        return set().union(*(names(each) for each in value))
    if not isinstance(value, dict):
        return set()
    if key == "shape":  # the rest are the study's parameters
        return {"name"}
    inside = set().union(*(names(each, name) for name, each in value.items()))
    return inside if key in BY_DATA else inside | value.keys()


@pytest.fixture(scope="module")
def found() -> set[str]:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *text, **_: printed.append(" ".join(map(str, text))))
        arguments = ["--study", "attention", "--json", "--project", str(TESTS / "fixture")]
        assert main(["ablate", *arguments]) == 0
    return names(json.loads(next(text for text in printed if text.startswith("{"))))


def test_key_names_are_few(found: set[str]) -> None:
    assert 80 < len(found) <= MOST


def test_the_docs_explain_every_key(found: set[str]) -> None:
    assert found - explained(DOCS.partition("## `workbench diff")[0]) == set()


def explained(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_0-9]+)`", text))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_docs_explain_what_a_record_shows(record: type) -> None:
    assert set(shown_names(record)) - explained(DOCS) == set()
