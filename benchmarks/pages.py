"""What the scripts share that write parts of docs/."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """In Markdown: the columns behind the first ``left`` are numbers."""
    rules = ["---"] * left + ["--:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in (head, rules, *rows))


def with_part(text: str, name: str, made: str) -> str:
    """A page with what was ``made`` between ``<!-- name -->`` and ``<!-- /name -->``."""
    marks = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
    return re.sub(marks, lambda match: match[1] + made + match[2], text, flags=re.DOTALL)
