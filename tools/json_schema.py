"""Write the JSON Schema of ``--json`` from the records: starters/agents/schema.json.

    python -m tools.json_schema

Types are the annotations of the records that docs/reference.md lists. A record allows no key that
it does not have. What is an object of the user's own keys, such as a shape, allows any.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from enum import EnumType
from functools import cache
from pathlib import Path
from typing import Any

from tools.pages import write
from tools.reference import annotation, printed

from workbench import words
from workbench.render import columns
from workbench.render.as_json import FLAT, VERSION, shown_names
from workbench.reporters.schema import Failure

PAGE = Path(__file__).parents[1] / "starters" / "agents" / "schema.json"
Schema = dict[str, Any]
PLAIN: Mapping[str, Schema] = {
    "str": {"type": "string"},
    "Path": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": ["number", "null"]},  # null is NaN or infinite
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "Any": {},
}
LISTS = ("list", "tuple", "Sequence", "Iterable", "frozenset")
OBJECTS = ("dict", "Mapping")
METRIC = {"variant": "str", "capture": "str", "metric": "str", "metrics": "list[MetricValue]"}
# What a verb prints that is no record itself.
VERBS: Mapping[str, Sequence[str | Mapping[str, str]]] = {
    "ablate": ["LadderAnswer", {"tables": "list[LadderAnswer]"}],
    "advise": ["AdviceAnswer", "ReportAnswer"],
    "build": [{"study": "str", "builds": "list[VariantBuild]"}],
    "check": ["CheckedStudy"],
    "diff": ["PairAnswer", "ReportPair"],
    "doctor": [{"rows": "list[Any]", "works": "dict[str, bool]", "conclusion": "str"}],
    "gate": ["Gated"],
    "init": ["NewWorkspace", {"folder": "str", "written": "list[str]"}],
    "list": [{"studies": "list[ListedStudy]"}],
    "new": ["NewStep"],
    "profile": ["LadderAnswer", "ReportAnswer", "TracedProgram"],
    "show": ["VariantAnswer", "ReportAnswer", "VariantLines", "ReportLines", METRIC],
    "sweep": [{"sweeps": "list[Sweep]"}],
    "try": ["Attempt"],
    "weigh": [
        {"trace": "str", "weighed": "dict[str, Any]", "variant": "str", "reference": "str"}
        | {"shape": "str", "ratio": "float | None"}
    ],
}
# Keys that only ``list --full`` prints.
FULL = {"EvidenceState": ("build", "check", "timing", "capture")}
BESIDE = {  # keys that stand beside those of a record
    "Attempt": {"tried": "LadderRow | None", "references": "list[LadderRow]"},
}


@cache
def known() -> Mapping[str, type]:
    return printed()


def of_type(node: ast.expr) -> Schema:
    """The schema of an annotation; of a type that is no record and no word, anything."""
    if isinstance(node, ast.BinOp):
        kinds = [one for one in (of_type(node.left), of_type(node.right)) if one is not None]
        return {"anyOf": [part for kind in kinds for part in kind.get("anyOf", [kind])]}
    if isinstance(node, ast.Subscript):
        return _of_many(ast.unparse(node.value), node.slice)
    name = ast.unparse(node).rpartition(".")[2]
    if name in PLAIN:
        return dict(PLAIN[name])
    if name == "UnsetType":
        return {"not": {}}
    if name in known():
        return {"$ref": f"#/$defs/{name}"}
    kind = getattr(words, name, None)
    return {"enum": [*map(str, kind)]} if isinstance(kind, EnumType) else {}


def _of_many(outer: str, inner: ast.expr) -> Schema:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if outer in LISTS:
        fixed = outer == "tuple" and not (
            len(parts) > 1 and isinstance(parts[-1], ast.Constant) and parts[-1].value is ...
        )
        if fixed:
            return {"type": "array", "prefixItems": list(map(of_type, parts))}
        return {"type": "array", "items": of_type(parts[0])}
    if outer in OBJECTS:
        return {"type": "object", "additionalProperties": of_type(parts[-1])}
    return {}


def typed(text: str) -> Schema:
    return of_type(ast.parse(text, mode="eval").body) if text else {}


def of_record(name: str) -> Schema:
    """Its own keys, and those of the records that stand flat in it."""
    record: Any = known()[name]
    keys: dict[str, Schema] = {}
    required = []
    for field in shown_names(record):
        text = annotation(record, field)
        if field == "columns":
            keys |= {column.key: {} for column in columns.COLUMNS}
        elif field in FLAT:
            for part in text.split(" | "):
                keys |= of_record(part)["properties"] if part in known() else {}
        else:
            keys[field] = typed(text)
            required += [field] * ("Unset" not in text and field not in FULL.get(name, ()))
    keys |= {key: typed(text) for key, text in BESIDE.get(name, {}).items()}
    return {
        "type": "object",
        "properties": keys,
        "required": required,
        "additionalProperties": False,
    }


def schema() -> Schema:
    """All records below ``$defs``, and the answer of each verb under its name."""
    common = {"schema_version": {"const": VERSION}, "left_out": {"type": "integer"}}
    defs = {name: of_record(name) for name in known()}
    for verb, answers in VERBS.items():
        defs[verb] = {"anyOf": [{"$ref": "#/$defs/failed"}, *(_answer(a, common) for a in answers)]}
    error = {
        "type": "object",
        "properties": {key: {} for key in Failure.__annotations__},
        "required": ["code", "exit_code", "message"],
    }
    failed = {"type": "object", "properties": {**common, "error": error}, "required": ["error"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "workbench VERB --json",
        "$defs": {**defs, "failed": failed},
    }


def _answer(answer: str | Mapping[str, str], common: Schema) -> Schema:
    """With no key required: an answer that is too long loses its longest."""
    if isinstance(answer, str):
        keys = of_record(answer)["properties"]
    else:
        keys = {key: typed(text) for key, text in answer.items()}
    return {"type": "object", "properties": {**keys, **common}, "additionalProperties": False}


def text() -> str:
    """A line for each record."""
    whole = schema()
    lines = [f"{json.dumps(name)}: {json.dumps(of)}" for name, of in whole.pop("$defs").items()]
    head = json.dumps(whole)[:-1]
    return f'{head}, "$defs": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    write({PAGE: text()})
