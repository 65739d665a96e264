"""The records that ``--json`` prints, as a part of docs/reference.md: keys, types and meanings.

Keys and types come from the code, the meanings from json_keys.toml beside this file: under
``[keys]`` by name, or under ``[Record]`` where a record uses a name in another sense.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from workbench.app.bisect import Bisected
from workbench.app.gate import Gated, StudyChanges
from workbench.app.new import NewStep, NewWorkspace
from workbench.app.try_ import Attempt, TriedReference
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
from workbench.judge.open_verdicts import Spent
from workbench.judge.predictions import PredictionOutcome, Score
from workbench.judge.rows import Row
from workbench.ncu.capture import MetricValue
from workbench.ncu.report_file import Launch, Report
from workbench.render.as_json import shown_names
from workbench.render.document.checks import CheckedStudy, CheckRow, ErrorBound
from workbench.render.document.environment import Save, VariantBuild
from workbench.render.document.listing import EvidenceState, Listed, ListedStudy, SpendingLimit
from workbench.run.repository import Commit

MEANINGS = Path(__file__).with_name("json_keys.toml")
RECORDS: tuple[type, ...] = (
    *(Row, Time, Ratio, Interval, Gate, Accuracy, PredictionOutcome, Score, Finding, KindRecord),
    *(regimes.InRegime, regimes.Elsewhere, regimes.AtShape, regimes.AcrossShapes),
    *(sessions.TimingFacts, sessions.Company, sessions.Twin, sessions.Throttling),
    *(figures.Figure, figures.StallTime, bottlenecks.Bottleneck, bottlenecks.HotLine),
    *(point.Point, point.LevelPoint, point.MeasuredCeiling, point.MeasuredCeilings),
    *(factors.SpeedupFactors, factors.Factor, comparison.Comparison, comparison.RuleChange),
    *(largest_changes.LargestChanges, largest_changes.FigureChange),
    *(line_diff.Hunk, line_diff.DiffRow, line_diff.SourceRow, line_diff.Shift),
    *(costs.Cost, costs.InstructionCost, Launch, Report, MetricValue),
    *(parameter_sweep.Sweep, parameter_sweep.Combination),
    *(sizes.OverSizes, sizes.SizeLine, sizes.AtSize),
    *(leave_one_out.LeftOut, leave_one_out.Worth, leave_one_out.Switch),
    *(Attempt, TriedReference, ErrorBound),
    *(Gated, StudyChanges, commits.VariantChange, comparison.Difference),
    *(commits.TimedPair, Bisected, Commit),
    *(NewWorkspace, NewStep, VariantBuild, Save, CheckedStudy, CheckRow),
    *(ListedStudy, Listed, EvidenceState, Spent, SpendingLimit),
)
HEAD = """## JSON records

[The JSON of the verbs](json.md) says which verb prints which record. "or null" means that the value
may be missing; an object is a JSON object, with the type of its values.

"""
OBJECTS = {"Advice", "Build", "Ceiling", "Check", "GraphNode"}  # not listed here
WORDS = {"str": "text", "int": "number", "float": "number", "bool": "true or false", "None": "null"}
SEQUENCE = re.compile(r"(?:tuple|list|Sequence)\[([^\[\]]+?)(?:, \.\.\.)?\]")
MAPPING = re.compile(r"(?:Mapping|dict)\[[^\[\],]+, ([^\[\]]+)\]")


def annotation(record: Any, name: str) -> str:
    """The annotation of a field, or of what a property returns, as written; of a lambda none."""
    known = {field.name: str(field.type) for field in fields(record)}
    if name in known:
        return known[name]
    (getter,) = [vars(base)[name].fget for base in record.__mro__ if name in vars(base)][:1]
    return str(getter.__annotations__.get("return", ""))


def type_in_words(text: str) -> str:
    """``tuple[Hunk, ...] | None`` as "list of Hunk, or null"."""
    before = ""
    while text != before:
        before = text
        text = MAPPING.sub(r"object of \1", SEQUENCE.sub(r"list of \1", text))
    text = re.sub(r"Literal\[.*\]", "text", text)
    if not text:
        return ""
    parts = dict.fromkeys(part.strip() for part in text.split("|"))
    records = {record.__name__ for record in RECORDS}
    words = dict.fromkeys(_words(part, records) for part in parts)
    optional = ", or null" if words.pop("null", "") is None else ""
    return " or ".join(words) + optional


def _words(part: str, records: set[str]) -> str:
    head, of, name = part.rpartition("of ")
    name = name.rpartition(".")[2]
    if name in records:
        return f"{head}{of}[{name}](#{name.lower()})"
    if "," in name:
        return f"{head}{of}values"
    return f"{head}{of}{WORDS.get(name, 'object' if name in OBJECTS else 'text')}"


OBJECTS = {
    "Advice",
    "Call",
    "Ceiling",
    "Build",
    "Check",
    "Place",
    "GraphNode",
}  # records of evidence


def records() -> Iterator[str]:
    """Raises KeyError for a key without a meaning, and ValueError for a meaning without a key."""
    told = tomllib.loads(MEANINGS.read_text(encoding="utf-8"))
    left = {(table, key) for table, keys in told.items() for key in keys}
    yield HEAD
    for record in RECORDS:
        yield f"### `{record.__name__}`\n\n| key | type | meaning |\n| --- | --- | --- |\n"
        own = told.get(record.__name__, {})
        for name in shown_names(record):
            table = record.__name__ if name in own else "keys"
            left.discard((table, name))
            meaning = own[name] if name in own else told["keys"][name]
            yield f"| `{name}` | {type_in_words(annotation(record, name))} | {meaning} |\n"
        yield "\n"
    if left:
        raise ValueError(f"no record has these keys of {MEANINGS.name}: {sorted(left)}")
