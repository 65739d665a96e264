"""Adds a step to the text of ``ablation.toml``: its comments and its layout stay as they are."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.study.model import Prediction, Step

_HEADER = re.compile(r"""\s*\[\[?\s*["']?([\w-]+)[^\]]*\]\]?\s*(?:#.*)?""")
UNPREDICTED = """\
# What you expect, as a factor of the parent's value; write it before you measure.
# [[step.prediction]]
# figure = "time"
# factor = [0.8, 0.95]
"""


def step_text(step: Step, remarks: Iterable[str] = ()) -> str:
    """The step as TOML; ``remarks`` become comments below its change."""
    lines = [
        "[[step]]",
        f"variant = {quoted(step.variant)}",
        *([f"parent = {quoted(step.parent)}"] if step.parent else []),
        f"key_change = {quoted(step.key_change)}",
        *(f"# {line}".rstrip() for line in remarks),
    ]
    text = "\n".join(lines) + "\n"
    for prediction in step.predictions:
        text += (
            f"\n[[step.prediction]]\nfigure = {quoted(prediction.figure)}\n{_bounds(prediction)}\n"
        )
    return text if step.predictions else f"{text}\n{UNPREDICTED}"


def _bounds(prediction: Prediction) -> str:
    key = "factor" if prediction.factor is not None else "range"
    low, high = prediction.factor or prediction.range or (0.0, 0.0)
    return f"{key} = [{low:g}, {high:g}]"


def quoted(text: str) -> str:
    """A string of TOML: JSON's escapes are among its own."""
    return json.dumps(text, ensure_ascii=False)


def with_step(path: Path, text: str, added: str) -> str:
    """The ladder's text with the step behind the last one.

    What TOML reads of it afterwards is compared with what it should be, so that a layout that is
    not understood is refused, not spoilt. Raises UsageError.
    """
    wanted = tomllib.loads(text)
    wanted["step"] = [*wanted.get("step", []), *tomllib.loads(added)["step"]]
    lines = text.splitlines(keepends=True)
    for place in (_behind_the_steps(lines), len(lines)):
        tried = _inserted(lines, place, added)
        if _read(tried) == wanted:
            return tried
    raise UsageError(
        f"{path} has its steps in a form that none can be added to",
        hint="write them as [[step]] tables, or add this one by hand",
    )


def _read(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _behind_the_steps(lines: Sequence[str]) -> int:
    """Before the table that follows the last step, and the comment right above it."""
    found = [(n, match[1]) for n, line in enumerate(lines) if (match := _HEADER.fullmatch(line))]
    last = max((n for n, name in found if name == "step"), default=len(lines))
    place = min((n for n, _ in found if n > last), default=len(lines))
    while place > last + 1 and place < len(lines) and lines[place - 1].lstrip().startswith("#"):
        place -= 1
    return place


def _inserted(lines: Sequence[str], place: int, added: str) -> str:
    """With one empty line on either side, and the line ends that the file has."""
    above, below = "".join(lines[:place]), "".join(lines[place:])
    end = "\r\n" if "\r\n" in above + below else "\n"
    kept = above.rstrip()
    return (
        (kept + 2 * end if kept else "")
        + added.strip().replace("\n", end)
        + end
        + (end + below if below.strip() else "")
    )
