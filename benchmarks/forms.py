"""Forms of a variant: copies of its study's sources with parts of the work left out, by replacing
text, which fails where a text is not there as often as it should be.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class Changed(Exception):
    """A source is not what the replacements were written for."""


@dataclass(frozen=True)
class Edit:
    """``old`` stands so many times in the file, and is replaced."""

    file: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True)
class Form:
    """``edits`` names what is applied, in this order."""

    name: str
    edits: tuple[str, ...] = ()


def write_form(
    study: Path, variant: str, form: Form, edits: Mapping[str, tuple[Edit, ...]], scratch: Path
) -> Path:
    """A copy of the study's folder with the form's edits, of those that there are by name. Raises
    Changed.
    """
    folder = scratch / f"{variant} {form.name}".replace(" ", "-") / "kernels" / study.name
    if not folder.is_dir():
        shutil.copytree(study, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in (edit for name in form.edits for edit in edits[name]):
            path = folder / edit.file
            text = path.read_text("utf-8")
            if (found := text.count(edit.old)) != edit.times:
                what = f"{variant}, {form.name}: in {edit.file} {found} times, not {edit.times}"
                raise Changed(f"{what}:\n{edit.old}")
            path.write_text(text.replace(edit.old, edit.new), "utf-8")
    return folder
