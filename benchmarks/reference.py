"""Write docs/reference.md from the code: verbs with options, keys of the settings and of JSON.

python -m benchmarks.reference
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
from benchmarks import json_records

from workbench.cli.main import VERBS, command
from workbench.render.document.advice import CATALOGUE
from workbench.study.config import Config
from workbench.study.ladder_file import LadderFile, Reference
from workbench.study.model import Prediction, Step
from workbench.study.text import expected

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
HEAD = """# Reference

`python -m benchmarks.reference` writes this page from the code. [Verbs](verbs.md) explains how the
verbs fit together. [Studies and variants](variants.md) explains the files of a study.
"""
LADDER = {
    "": LadderFile,
    "[[step]]": Step,
    "[[step.prediction]]": Prediction,
    "[[reference]]": Reference,
}


def row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def table(*columns: str) -> str:
    return row(*columns) + row(*["---"] * len(columns))


def verb(name: str) -> Iterator[str]:
    """Usage, help and options of a verb, as ``--help`` has them."""
    found = command().commands[name]
    context = found.make_context(f"workbench {name}", [], resilient_parsing=True)
    usage = found.get_usage(context).removeprefix("Usage: ")
    yield f"### `{name}`\n\n`{' '.join(usage.split())}`\n\n"
    yield "\n\n".join(" ".join(part.split()) for part in found.help.split("\n\n")) + "\n\n"
    yield table("argument or option", "meaning")
    for parameter in found.params:
        option, meaning = parameter.get_help_record(context)
        option = option if option.startswith("-") else option.partition(" <")[0]
        yield row(f"`{option}`", re.sub(r"'([^']*)'", r"`\1`", meaning.strip()))
    yield "\n"


def meanings(record: type) -> dict[str, str]:
    """The text of each line "key: meaning" in the docstring of a record."""
    found = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", record.__doc__ or "", re.MULTILINE)
    return {key: " ".join(text.split()).replace("``", "`") for key, text in found}


def default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    known = field.default not in (None, "", (), msgspec.NODEFAULT)
    return f"`{msgspec.json.encode(field.default).decode()}`" if known else ""


def keys(record: type, inner: tuple[str, ...] = ()) -> Iterator[str]:
    """The table of a record's keys, except for the ``inner`` tables.

    Raises KeyError for a key without a meaning.
    """
    told, kinds = meanings(record), get_type_hints(record, include_extras=True)
    yield table("key", "type", "default", "meaning")
    for field in msgspec.structs.fields(record):
        key: Any = field.encode_name
        if key not in inner:
            yield row(f"`{key}`", expected(kinds[field.name]), default(field), told[key])
    yield "\n"


def summary(record: type) -> str:
    return " ".join((record.__doc__ or "").split("\n\n")[0].split()).replace("``", "`") + "\n\n"


def page() -> str:
    parts = [HEAD, "\n## Verbs\n\n"]
    for name in VERBS:
        parts += verb(name)
    tables = tuple(
        name for name, kind in get_type_hints(Config).items() if issubclass(kind, msgspec.Struct)
    )
    parts += ["## workbench.toml\n\n", summary(Config), *keys(Config, tables)]
    for name in tables:
        record = get_type_hints(Config)[name]
        parts += [f"### `[{name}]`\n\n", summary(record), *keys(record)]
    parts.append("## ablation.toml\n\n")
    for name, record in LADDER.items():
        parts += [f"### `{name}`\n\n"] if name else []
        parts += [summary(record), *keys(record, ("step", "reference"))]
    parts += ["## Kinds of change\n\n", table("kind", "in words", "how")]
    parts += [row(f"`{kind}`", known.title, known.how) for kind, known in CATALOGUE.items()]
    parts += ["\n", *json_records.records()]
    return "".join(parts).rstrip() + "\n"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
