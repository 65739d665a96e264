"""What the scripts share: answers of verbs, recorded timings, tables, and pages in docs/."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from workbench.cli.main import main
from workbench.evidence import store
from workbench.evidence.records import Timing
from workbench.load import TimedTogether

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def answer(*arguments: str) -> dict[str, Any]:
    """The JSON of a verb, with its ``exit_code``. Raises ValueError where it prints none: its error
    is on stderr.
    """
    with redirect_stdout(io.StringIO()) as printed:
        code = main([*arguments])
    found, _ = json.JSONDecoder().raw_decode(printed.getvalue())
    return {**found, "exit_code": code}


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """In Markdown: the columns behind the first ``left`` are numbers."""
    rules = ["---"] * left + ["--:"] * (len(head) - left)
    return "\n".join(map(row, (head, rules, *rows)))


def row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def batched(items: Iterable[T], most: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, most)):
        yield some


def timings(evidence: Path) -> Iterator[TimedTogether]:
    """All that are recorded below a folder, at any shape."""
    for path in sorted(evidence.rglob("timings/*")):
        timing = store.read_record(path, Timing)
        yield TimedTogether(path.name, timing, frozenset(timing.fingerprints))


def write(made: Mapping[Path, str]) -> None:
    for path, text in made.items():
        path.write_text(text, "utf-8")


def with_parts(page: Path, made: Mapping[str, str]) -> str:
    """The text of a page with each part by its name, as ``with_part`` has one."""
    text = page.read_text("utf-8")
    for name, part in made.items():
        text = with_part(text, name, part)
    return text


def with_part(text: str, name: str, made: str) -> str:
    """A page with what was ``made`` between ``<!-- name -->`` and ``<!-- /name -->``; the second
    has no more than stands before a colon.
    """
    marks = rf"(<!-- {name} -->\n).*?(<!-- /{name.partition(':')[0]} -->)"
    return re.sub(marks, lambda match: match[1] + made + match[2], text, flags=re.DOTALL)
