"""What attention costs piece by piece: the forms can still be made, and the page has the record."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

import pytest
from benchmarks import forms, least

SHAPES = [target.shape for target in least.TARGETS]
ROWS = {"2,8,512,64": SHAPES[:2], "1,16,16384,64": SHAPES[2:]}  # of the table of targets


def times() -> dict[str, dict[str, float]]:
    """Microseconds by shape and form."""
    shapes = json.loads(least.RECORD.read_text("utf-8"))["shapes"]
    return {
        one["shape"]: {form["form"]: median(form["microseconds"]) for form in one["forms"]}
        for one in shapes
    }


def over(form: str, shape: str) -> float:
    """How many times faster than the original."""
    found = times()[shape]
    return found[least.ORIGINAL] / found[form]


@pytest.mark.parametrize("target", least.TARGETS, ids=SHAPES)
def test_every_form_can_be_made_of_the_sources_as_they_are(
    target: least.Target, tmp_path: Path
) -> None:
    for form in target.forms:
        folder = least.made(target, form, tmp_path)
        changed = any(
            (folder / path.name).read_bytes() != path.read_bytes()
            for path in least.FOLDER.glob("*.cu*")
        )
        assert changed == bool(form.edits), form.name


def test_a_form_of_other_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = forms.Edit("fix18.cu", "nobody wrote this", "")
    monkeypatch.setitem(least.FIX18, "gone", (gone,))
    target = least.TARGETS[-1]
    assert target.variant == "fix18"
    with pytest.raises(forms.Changed, match=r"fix18, gone: in fix18\.cu 0 times, not 1"):
        least.made(target, forms.Form("gone", ("gone",)), tmp_path)


def test_the_page_has_the_record_and_what_follows_from_it() -> None:
    text = least.PAGE.read_text("utf-8")
    block = least.BLOCK.search(text)
    assert block is not None
    assert block[0] == f"<!-- least -->\n{least.page_table()}\n<!-- /least -->"
    plain = " ".join(text.split())
    recorded: dict[str, float] = {}
    for row, shapes in ROWS.items():
        cells = re.search(rf"\| {row}, causal \| [\d.]+x \| ([\d.]+)x, ([\d.]+)x[ |]", text)
        assert cells is not None
        recorded |= dict(zip(shapes, map(float, cells.groups()), strict=True))
    short, long = SHAPES[:2], SHAPES[2:]
    of_parent = re.search(r"`fix16` is ([\d.]+)x and ([\d.]+)x of the faster", plain)
    assert of_parent is not None
    before = dict(zip(short, map(float, of_parent.groups()), strict=True))
    told = {
        "2.3x would be {} and {} of that. Without": [f"{2.3 / before[at]:.2f}x" for at in short],
        "sums it would be {} and {}": [
            f"{before[at] * over('and no sums', at):.2f}x" for at in short
        ],
        "conversions, would be {} and {}": [
            f"{before[at] * over('products only', at):.2f}x" for at in short
        ],
        "`fix27`, which calls `fix23`, is {} and {}; 2.3x would be {} and {} of that": [
            *(f"{recorded[at]:.2f}x" for at in short),
            *(f"{2.3 / recorded[at]:.2f}x" for at in short),
        ],
        "would be {} of what is on record, and under the mask {}": [
            f"{1.15 / recorded[shape]:.3f}x" for shape in long
        ],
        "maxima gives {} and {}": [f"{over('no maximum', shape):.3f}x" for shape in long],
        "sums as well {} and {}": [f"{over('and no sums', shape):.3f}x" for shape in long],
    }
    for sentence, figures in told.items():
        assert sentence.format(*figures) in plain
    (record,) = (
        one for one in json.loads(least.RECORD.read_text())["shapes"] if one["shape"] == long[0]
    )
    clocks = {form["form"]: median(form["megahertz"]) for form in record["forms"]}
    shown = re.search(
        r"([\d,]+) MHz for the original, ([\d,]+) without maxima, ([\d,]+) without exp", plain
    )
    assert shown is not None
    names = (least.ORIGINAL, "no maximum", "and no exponentials")
    assert [int(one.replace(",", "")) for one in shown.groups()] == [clocks[n] for n in names]
