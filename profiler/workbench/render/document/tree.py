"""The tree of parents: which step changes which, drawn as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workbench.judge.rows import Ablation, Row
from workbench.render.document.blocks import CodeBlock
from workbench.render.document.phrases import brief_reason, parent_of, verdict
from workbench.words import Status, Verdict

LAST, INNER, PASSING, CLEAR = "└─ ", "├─ ", "│  ", "   "


def tree(ablation: Ablation) -> CodeBlock:
    """A line a step under its parent, with its verdict; a chain of only children is not indented:
    it reads from the top down.
    """
    children: dict[str, list[Row]] = {}
    for row in ablation.rows:
        children.setdefault(parent_of(row), []).append(row)
    return CodeBlock("\n".join(_lines(children.get("", []), children, "")))


def _lines(
    rows: Sequence[Row], children: Mapping[str, Sequence[Row]], before: str
) -> Iterator[str]:
    """``before`` is what stands before every line of these rows and of what follows them."""
    for number, row in enumerate(rows, start=1):
        forked, last = len(rows) > 1, number == len(rows)
        branch = (LAST if last else INNER) if forked else ""
        failed = row.status == Status.FAILED and not row.judged_at
        word = brief_reason(row) if failed else verdict(row)
        told = "" if row.verdict == Verdict.BASELINE else f"  {word}"
        yield f"{before}{branch}{row.variant}{told}"
        deeper = before + ((CLEAR if last else PASSING) if forked else "")
        yield from _lines(children.get(row.variant, ()), children, deeper)
