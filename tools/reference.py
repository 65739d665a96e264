"""Write what the code says of itself: docs/reference.md with the keys of the settings, columns and
changes, the reference of the skill for agents, and the JSON Schema of ``--json``.

python -m tools.reference

The records of the schema are those that docs/json.md names, and those that they hold. Meanings of
their keys are in json_keys.toml beside this file: under ``[keys]`` by name, or under ``[Record]``
where a record uses a name in another sense.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import EnumType
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from tools.pages import DOCS, table, write

import workbench
from workbench import words as vocabulary
from workbench.cli.schema import ANSWERS, EVERY, Failure
from workbench.render import answers
from workbench.render.as_json import FLAT, VERSION, shown_names
from workbench.render.doc import with_unit
from workbench.render.document import printed_ladder as registry
from workbench.render.document.advice import CATALOGUE
from workbench.study.config import Config
from workbench.study.model import LadderFile, Prediction, Reference, Step
from workbench.words import Change, Stage

AGENTS = Path(__file__).parents[1] / "starters" / "agents"
SKILL, SCHEMA = AGENTS / "reference.md", AGENTS / "schema.json"
PAGE, MEANINGS = DOCS / "reference.md", Path(__file__).with_name("json_keys.toml")
HEAD = """# Reference

`python -m tools.reference` writes this page from the code. [Verbs](verbs.md) has the exit codes and
environment variables. [Studies and variants](variants.md) explains the files of a study.
"""
CHANGES = """## Kinds of change

The `kind` of a step in `ablation.toml`. `workbench advise` explains those that it proposes.

"""
PACKAGES = ("app", "cli", "derive", "judge", "ncu", "render", "run.repository")  # with records
OBJECTS = {"Advice", "Build", "Check", "Data", "GraphNode", "Place"}  # not listed
LADDER = {
    "": LadderFile,
    "[[step]]": Step,
    "[[step.prediction]]": Prediction,
    "[[reference]]": Reference,
}


def listed(columns: str, rows: Iterable[tuple[str, ...]]) -> str:
    """A table below ``columns``, with a comma between them."""
    heads = columns.split(", ")
    return f"{table(heads, rows, left=len(heads))}\n\n"


def meanings(record: type) -> dict[str, str]:
    """The text of each line "key: meaning" in the docstring of a record."""
    found = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", record.__doc__ or "", re.MULTILINE)
    return {key: " ".join(text.split()).replace("``", "`") for key, text in found}


TOML = {bool: "true or false", str: "a string", tuple[float, float]: "[low, high]"}


def choices(want: Any) -> str:
    """The values that a key may have; empty where there is no list of them."""
    if get_origin(want) is Literal or isinstance(want, EnumType):
        return f"one of {', '.join(map(str, get_args(want) or want))}"
    return ""


def expected(want: Any) -> str:
    """A type of ablation.toml in words; of ``X | None`` that of X."""
    if want in TOML:
        return TOML[want]
    if want is Change:
        return "a [kind of change](#kinds-of-change)"
    if one_of := choices(want):
        return one_of
    kind, *more = get_args(want)
    if more == [...]:
        return "tables, each below its name in [[ ]]" if kind is Prediction else "a list of strings"
    if get_origin(want) is not Annotated or more[0].pattern:
        return expected(kind)
    return f"{TOML[kind]} of at most {more[0].max_length} characters"


def summary(record: type) -> str:
    """The first paragraph of its docstring."""
    return " ".join((record.__doc__ or "").split("\n\n")[0].split()).replace("``", "`")


def keys(record: type, inner: tuple[str, ...] = ()) -> str:
    """What a record is, and the table of its keys, except for the ``inner`` tables.

    Raises KeyError for a key without a meaning.
    """
    told, kinds = meanings(record), get_type_hints(record, include_extras=True)
    rows = (
        (
            f"`{field.encode_name}`",
            f"{expected(kinds[field.name])}{', required' * field.required}",
            told[field.encode_name],
        )
        for field in msgspec.structs.fields(record)
        if field.encode_name not in inner
    )
    return f"{summary(record)}\n\n{listed('key, type, meaning', rows)}"


def settings() -> str:
    """All of workbench.toml with its defaults. Raises KeyError for a key without a meaning."""
    kinds = get_type_hints(Config)
    tables = {name: kind for name, kind in kinds.items() if issubclass(kind, msgspec.Struct)}
    lines: list[str] = []
    for name, record in {"": Config, **tables}.items():
        lines += ["", f"[{name}]  # {summary(record)}"] if name else []
        told, types = meanings(record), get_type_hints(record)
        for field in msgspec.structs.fields(record):
            if field.name not in tables:
                one_of = choices(types[field.name]).capitalize()
                lines.append(" ".join(filter(None, ("#", told[field.encode_name], one_of))))
                lines.append(f"{field.encode_name} = {msgspec.json.encode(field.default).decode()}")
    text = "\n".join(lines)
    return f"## workbench.toml\n\nAll keys with their defaults:\n\n```toml\n{text}\n```\n\n"


LIMITS = {
    Stage.LAUNCH: "head and tail of the launch, in which no SM works",
    Stage.GRID: "fewer blocks than SMs",
    Stage.TAIL: "the last wave of blocks is not full",
    Stage.IMBALANCE: "SMs are done at different times",
    Stage.MEMORY: "`dram`, `l2`, `l1`: its bandwidth; `sectors`: uncoalesced accesses; `shared`: "
    "bank conflicts; `local`: spilled registers; `atomics`",
    Stage.PIPE: "`tensor`, `fma`, `xu` or `lsu`: the rate of an execution unit",
    Stage.ISSUE: "the number of instructions",
    Stage.LATENCY: "a stall reason of Nsight Compute, such as `long_scoreboard`, for which warps "
    "wait; `warps`: too few of them",
}
EXAMPLE = """## One worked example

Recorded on an H100, in the study `transpose` of the workbench's checkout:

1. `workbench advise baseline --brief --study transpose` prints `"limit": "memory.sectors"`
   and `"at": "kernels/transpose/baseline.cu:8"`. First in `next` is the kind `coalesce`, with
   `"why": "78 % of the sectors are more than its data needs, most of them written"`.
2. Open line 8. It stores a column: 32 lanes write to 32 rows.
3. `workbench new tiled --from baseline --change 'through a tile in shared memory'
   --predict 'time=0.2..0.4' --study transpose`. Edit the copy: neighbouring lanes read and write
   neighbours.
4. `workbench ablate tiled --brief --study transpose` prints `"verdict": "kept"`, and a ratio of
   3.79: the time is 0.26 of its parent's.
5. `limit` is now `memory.shared`, for bank conflicts. The next step, `padded`, is kept at 1.57.
"""


def skill() -> str:
    """The reference file of the skill for coding agents."""
    kinds = [(f"`{change}`", recipe.title, recipe.how) for change, recipe in CATALOGUE.items()]
    limits = [(f"`{stage}`", LIMITS[stage]) for stage in Stage]
    meanings = {key: text for keys in (EVERY, *ANSWERS.values()) for key, (_, text) in keys.items()}
    keys = [(f"`{key}`", text) for key, text in meanings.items()]
    return (
        "# Reference of the workbench skill\n\n"
        f"## Kinds of change: `kind` of `next`\n\n{listed('kind, in words, what to do', kinds)}"
        "## Limits: `limit` is a stage, a dot and a detail\n\n"
        f"{listed('stage, meaning or details', limits)}"
        "## Keys\n\n`workbench schema VERB` prints their types. "
        "An error has `code`, `exit_code`, `message` and `hint`.\n\n"
        f"{listed('key, meaning', keys)}{EXAMPLE}"
    )


def classes() -> Iterator[type]:
    """Those of the engine that may be printed."""
    for kind in vars(answers).values():
        if isinstance(kind, type) and kind.__module__ == answers.__name__:
            yield kind
    for module in walk_packages(workbench.__path__, "workbench."):
        if module.name.removeprefix("workbench.").startswith(PACKAGES):
            for kind in vars(import_module(module.name)).values():
                if is_dataclass(kind) and isinstance(kind, type):
                    yield kind


@cache
def printed() -> dict[str, type]:
    """By name, in the order in which docs/json.md names them; then what they hold."""
    every = {kind.__name__: kind for kind in classes() if kind.__name__ not in OBJECTS}
    words = re.findall(r"`(\w+)`", (DOCS / "json.md").read_text(encoding="utf-8"))
    wanted = [word for word in words if word in every]
    found: dict[str, type] = {}
    while wanted:
        name, *wanted = wanted
        if name not in found:
            kind = found[name] = every[name]
            fields = " ".join(annotation(kind, field) for field in own_names(kind))
            inside = f"{' '.join(known_from(kind))} {fields}"
            wanted += [each for each in re.findall(r"\w+", inside) if each in every]
    return found


def own_names(record: Any) -> list[str]:
    """The keys that it does not have from another record of JSON."""
    inherited = getattr(record.__base__, "__struct_fields__", ())
    return [name for name in shown_names(record) if name not in (*inherited, *FLAT)]


def known_from(record: Any) -> list[str]:
    """The records whose keys it has beside its own."""
    base = [record.__base__.__name__] if getattr(record.__base__, "__struct_fields__", ()) else []
    flat = " ".join(annotation(record, name) for name in shown_names(record) if name in FLAT)
    return base + [name for name in re.findall(r"\w+", flat) if name not in OBJECTS]


def annotation(record: Any, name: str) -> str:
    """The annotation of a field, or of what a property returns, as written; of a lambda none."""
    known = [vars(base).get("__annotations__", {}).get(name) for base in record.__mro__]
    if written := next(filter(None, known), ""):
        return str(written)
    (getter,) = [vars(base)[name].fget for base in record.__mro__ if name in vars(base)][:1]
    return str(getter.__annotations__.get("return", ""))


@cache
def meanings_of_json() -> dict[str, dict[str, str]]:
    """Of json_keys.toml. Raises ValueError for a meaning of a key that no record has."""
    told: dict[str, dict[str, str]] = tomllib.loads(MEANINGS.read_text(encoding="utf-8"))
    left = {(table, key) for table, keys in told.items() for key in keys}
    for name, record in printed().items():
        own = told.get(name, {})
        left -= {(name if key in own else "keys", key) for key in own_names(record)}
    if left:
        raise ValueError(f"no record has these keys of {MEANINGS.name}: {sorted(left)}")
    return told


def meaning(record: Any, key: str) -> str:
    """What a key of JSON means in a record, or in the one from which it has the key.

    Raises KeyError for a key without a meaning.
    """
    told = meanings_of_json()
    tables = (told.get(base.__name__, {}) for base in record.__mro__)
    return next((table[key] for table in tables if key in table), None) or told["keys"][key]


def columns() -> str:
    """The registry of the ladder's columns."""
    names = {"reference": "REFERENCE", "fastest": "FASTEST"}
    rows = (
        (f"`{each.key}`", with_unit(each.heading.format(**names), each.unit), each.explanation)
        for each in registry.COLUMNS
    )
    return f"## Columns of the ladder\n\n{listed('key, heading, meaning', rows)}"


def written() -> dict[Path, str]:
    parts = [HEAD, "\n"]
    parts.append(settings())
    parts.append("## ablation.toml\n\n")
    for name, record in LADDER.items():
        parts.append(f"### `{name}`\n\n" * bool(name) + keys(record, ("step", "reference")))
    parts.append(columns())
    rows = ((f"`{kind}`", known.title) for kind, known in CATALOGUE.items())
    parts += [CHANGES, listed("kind, in words", rows)]
    return {PAGE: "".join(parts).rstrip() + "\n"}


# ---- the JSON Schema
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
MAPPINGS = ("dict", "Mapping")
METRIC = {"variant": "str", "capture": "str", "metric": "str", "metrics": "list[MetricValue]"}
# What a verb prints that is no record itself.
VERBS: Mapping[str, Sequence[str | Mapping[str, str]]] = {
    "ablate": ["LadderAnswer", {"tables": "list[LadderAnswer]"}],
    "advise": ["AdviceAnswer", "ReportAnswer"],
    "build": [{"study": "str", "builds": "list[VariantBuild]"}],
    "check": ["CheckedStudy"],
    "diff": ["PairAnswer", "ReportPair", "MachineCode"],
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
    if name in printed():
        return {"$ref": f"#/$defs/{name}"}
    kind = getattr(vocabulary, name, None)
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
    if outer in MAPPINGS:
        return {"type": "object", "additionalProperties": of_type(parts[-1])}
    return {}


def typed(text: str) -> Schema:
    return of_type(ast.parse(text, mode="eval").body) if text else {}


def of_record(name: str) -> Schema:
    """Its own keys, and those of the records that stand flat in it."""
    record: Any = printed()[name]
    keys: dict[str, Schema] = {}
    required = []
    for field in shown_names(record):
        text = annotation(record, field)
        if field == "columns":
            keys |= {each.key: {"description": each.explanation} for each in registry.COLUMNS}
        elif field in FLAT:
            for part in text.split(" | "):
                keys |= of_record(part)["properties"] if part in printed() else {}
        else:
            keys[field] = typed(text) | {"description": meaning(record, field)}
            required += [field] * ("Unset" not in text and field not in FULL.get(name, ()))
    keys |= {key: typed(text) for key, text in BESIDE.get(name, {}).items()}
    return {
        "type": "object",
        "properties": keys,
        "required": required,
        "additionalProperties": False,
    }


def schema() -> Schema:
    """All records below ``$defs``, and the answer of each verb under its name. A record allows no
    key that it does not have; an object of the user's own keys, such as a shape, allows any.
    """
    common = {"schema_version": {"const": VERSION}, "left_out": {"type": "integer"}}
    defs = {name: of_record(name) for name in printed()}
    for verb, kinds in VERBS.items():
        defs[verb] = {"anyOf": [{"$ref": "#/$defs/failed"}, *(_answer(a, common) for a in kinds)]}
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


def schema_file() -> str:
    """A line for each record."""
    whole = schema()
    lines = [f"{json.dumps(name)}: {json.dumps(of)}" for name, of in whole.pop("$defs").items()]
    head = json.dumps(whole)[:-1]
    return f'{head}, "$defs": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    write({**written(), SKILL: skill(), SCHEMA: schema_file()})
