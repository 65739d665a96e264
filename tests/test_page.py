"""The page as text: whole, the same each time, and proof against hostile words."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import pages
from synthetic import ablation, not_current, point, with_row
from workbench.cli import main
from workbench.judge.ablation import Ablation
from workbench.render.canvas import text_width
from workbench.render.page import page_environment, page_model, render_page
from workbench.render.page_roofline import NARROW, WIDE, Size, roofline
from workbench.render.page_sources import SourceFile, Sources
from workbench.render.page_stalls import bars
from workbench.render.spans import spans
from workspaces import ROOT, copy_of_repository

VOID = frozenset({"meta", "link", "br", "img", "hr"})
MOST_BYTES = 5_000_000


class Outline(HTMLParser):
    """Checks that tags nest, and keeps what the tests ask for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.captions = 0
        self.words = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif "style" not in self.open:
            self.words += data
            if any(re.fullmatch("h[1-6]", tag) for tag in self.open):
                level, text = self.headings[-1]
                self.headings[-1] = (level, text + data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        (text,) = [text for attributes, text in self.scripts if attributes.get("id") == "data"]
        found = json.loads(text)
        assert isinstance(found, dict)
        return found


def outline(found: Ablation, sources: Sources | None = None) -> Outline:
    return Outline(pages.render(found, sources))


def test_headings_are_in_order_and_skip_no_level() -> None:
    page = outline(*pages.recorded())
    levels = [level for level, _ in page.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [text for level, text in page.headings if level == 2] == [
        "The ladder", "Roofline", "Where the warps spend their time",
        "Where baseline loses its time",
        "Step by step", "What did not work", "Every version: figures and sources, line by line",
        "Environment and method", "Where each number comes from",
    ]  # fmt: skip


def test_landmarks_captions_and_names() -> None:
    page = outline(*pages.recorded())
    for tag in ("header", "nav", "main"):
        assert page.all(tag)
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(heading.get("scope") for heading in page.all("th"))
    assert all(svg.get("aria-label") or svg.get("aria-hidden") or svg.get("width") == "18"
               or svg.get("width") == "28" for svg in page.all("svg"))  # fmt: skip
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        target = attributes.get("href") or ""
        assert not target.startswith("#") or target[1:] in ids


def test_it_needs_nothing_from_anywhere() -> None:
    page = outline(*pages.recorded())
    for tag, attributes in page.tags:
        assert not attributes.get("src"), tag
        where = attributes.get("href") or ""
        assert where.startswith(("#", "data:")) or not where, where
    for path in (ROOT / "templates").glob("report*"):
        text = path.read_text(encoding="utf-8")
        for word in ("url(", "@import", "fetch(", "XMLHttpRequest", "sendBeacon", "import("):
            assert word not in text


def test_only_its_own_scripts_may_run() -> None:
    page = outline(*pages.recorded())
    policy = next(m["content"] for m in page.all("meta") if "http-equiv" in m) or ""
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    code = [text for attributes, text in page.scripts if not attributes.get("type")]
    made = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code}
    assert allowed == made
    assert "default-src 'none'" in policy
    assert "script-src 'unsafe" not in policy


def test_same_evidence_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    script = (
        "import hashlib, pages; "
        "print(hashlib.sha256(pages.render(*pages.recorded()).encode()).hexdigest())"
    )
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "profiler")])
    digests = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1


def test_model_is_plain_data() -> None:
    found, sources = pages.recorded()
    model = page_model(found, sources)
    assert json.loads(json.dumps(model, allow_nan=False)).keys() == model.keys()


def test_hostile_words_stay_words() -> None:
    found, sources = pages.hostile()
    text = pages.render(found, sources)
    page = Outline(text)
    assert len(page.scripts) == 3
    assert not page.all("img")
    assert "<!--" not in text
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "<script>" in page.words
    assert pages.NASTY in page.words
    assert page.data["sources"]["baseline.cu"] == sources.files["baseline"][0].text
    (name,) = [v["name"] for v in page.data["variants"] if v["name"].startswith("fix1")]
    assert name == f'fix1"{pages.NASTY}'
    assert [attributes for attributes in page.all("g") if attributes.get("data-variant") == name]


def test_every_version_has_its_row_point_bar_and_section() -> None:
    found, sources = pages.recorded()
    page = outline(found, sources)
    for row in found.everything:
        mine = [(tag, a) for tag, a in page.tags if a.get("data-variant") == row.variant]
        tags = [tag for tag, _ in mine]
        assert "tr" in tags
        assert "details" in tags
        assert sum((a.get("class") or "").startswith("point") for _, a in mine) == 2
        assert any((a.get("class") or "").startswith("bar") for _, a in mine)
        assert ("article" in tags) == (row.step is not None and row.step.parent is not None)


def test_figures_are_those_of_the_markdown_report() -> None:
    found, sources = pages.recorded()
    words = outline(found, sources).words
    for text in ("54.5x", "[4.49, 4.51]", "long scoreboard 75 %", "0.066 % of peak", "16 of 19"):
        assert text in words
    point = next(v for v in outline(found, sources).data["variants"] if v["name"] == "fix4")[
        "point"
    ]
    assert point[0][:2] == ["Performance", "71.0 TFLOP/s"]
    assert "dram__bytes_read.sum" in point[1][2]


def test_each_source_is_carried_once() -> None:
    found, sources = pages.recorded()
    text = pages.render(found, sources)
    line = "const size_t mine = head + static_cast"
    holders = [n for n, t in outline(found, sources).data["sources"].items() if line in t]
    assert len(holders) == text.count(line)


def test_lines_carry_their_stalls() -> None:
    found, sources = pages.recorded()
    data = outline(found, sources).data
    (stalls, *_) = data["heat"]["baseline"]["baseline.cu"]["30"]
    place, share = stalls[0]
    assert data["reasons"][place]["key"] == "long_scoreboard"
    line = sources.heat["baseline"].files["/workbench/kernels/attention/baseline.cu"][30]
    assert share == pytest.approx(line.stalls["long_scoreboard"], abs=1e-5)
    assert "sdpa" not in data["heat"]
    assert "as library kernels do" in outline(found, sources).words


def test_a_long_ladder_stays_small() -> None:
    found, sources = pages.long_ladder()
    text = pages.render(found, sources)
    assert len(found.rows) == pages.STEPS + 1
    assert len(text.encode()) < MOST_BYTES
    assert len(Outline(text).data["diffs"]) == pages.STEPS


@pytest.mark.parametrize("status", ["stale", "missing", "failed"])
def test_a_row_without_evidence_shows_no_figure(status: str) -> None:
    words = outline(not_current(ablation(3), "fix3", status, "its sources changed")).words
    assert "177 µs" not in words
    assert "No figures: " in words
    assert "337 µs" in words


def test_what_was_not_collected_is_said() -> None:
    bare: Ablation = ablation(1, ceilings=None)
    for row in bare.everything:
        bare = not_current(bare, row.variant, "missing", "not measured")
    words = outline(bare).words
    assert "Ceilings: not collected" in words
    assert "Stall samples: not collected" in words
    assert "there is no result yet" in words
    assert not re.search(r"\bNone\b|\bnan\b|\binf\b", words.replace("None was made", ""))
    assert "There is no step beyond the baseline yet" in outline(ablation(0)).words


def test_without_a_primary_reference_there_is_no_such_column() -> None:
    found = ablation(1, references=0, reference="")
    assert not any(
        c["key"] == "reference" for c in page_model(found, Sources())["ladder"]["columns"]
    )
    assert outline(found)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_labels_on_the_roofline_keep_apart(size: Size) -> None:
    drawing = roofline(ablation(12), size)
    assert drawing is not None
    boxes = []
    for label in drawing["labels"]:
        wide = text_width(label["text"], size.font)
        x = label["x"] - {"start": 0.0, "middle": wide / 2, "end": wide}[label["anchor"]]
        boxes.append((x, label["y"] - 0.8 * size.font, x + wide, label["y"] + 0.2 * size.font))
        assert x >= 0
        assert x + wide <= size.width
    for n, (ax, ay, bx, by) in enumerate(boxes):
        for cx, cy, dx, dy in boxes[n + 1 :]:
            assert ax >= dx or cx >= bx or ay >= dy or cy >= by


def test_points_stand_where_their_figures_say() -> None:
    found = ablation(3)
    drawing = roofline(found, WIDE)
    assert drawing is not None
    at = {p["variant"]: (p["x"], p["y"]) for p in drawing["points"]}
    for a in found.everything:
        for b in found.everything:
            assert a.point is not None
            assert b.point is not None
            if a.point.flops_per_second > 1.01 * b.point.flops_per_second:
                assert at[a.variant][1] < at[b.variant][1]
            if a.point.intensity > 1.01 * b.point.intensity:
                assert at[a.variant][0] > at[b.variant][0]
    assert [arrow["kept"] for arrow in drawing["arrows"]] == [True, False, True]


def test_a_point_above_its_roof_is_called_an_error() -> None:
    found = with_row(ablation(1), "fix1", point=point(5.0, 2.0))
    page = outline(found)
    assert "above its roof: an error in the data" in page.words
    assert any("error in the data" in (g.get("aria-label") or "") for g in page.all("g"))


def test_bars_add_up() -> None:
    for bar in bars(pages.recorded()[0]):
        assert sum(part["width"] for part in bar["parts"]) == pytest.approx(100, abs=0.02)


def words(text: str) -> list[tuple[str, str]]:
    return [
        (s["text"], "".join(k[0] for k in ("code", "strong", "em", "href") if s[k]))
        for s in spans(text)
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a `b` c", [("a ", ""), ("b", "c"), (" c", "")]),
        ("``a ` b``", [("a ` b", "c")]),
        ("`` `a` ``", [("`a`", "c")]),
        ("**x `y`** z", [("x ", "s"), ("y", "cs"), (" z", "")]),
        ("*so* 2*3*4 a_b_c", [("so", "e"), (" 2*3*4 a_b_c", "")]),
        (r"\*\_\<b> \`x\`", [("*_<b> `x`", "")]),
        ("[t](https://x.y) [t](javascript:x)", [("t", "h"), (" [t](javascript:x)", "")]),
        ("<b>&amp;`", [("<b>&amp;`", "")]),
        ("", []),
    ],
)
def test_inline_markdown(text: str, found: list[tuple[str, str]]) -> None:
    assert words(text) == found


def test_shared_headers_are_compared_and_heat_elsewhere_is_told() -> None:
    found, recorded = pages.recorded()
    header = SourceFile("common.cuh", "/workbench/kernels/attention/common.cuh", "int a;\n")
    other = SourceFile("common.cuh", header.virtual, "int a;\n")
    files = {**recorded.files, "fix1": (*recorded.files["fix1"], header)}
    sources = Sources({**files, "fix2": (*files["fix2"], other)}, recorded.heat)
    assert not any("common.cuh" in pair for pair in sources.pairs("fix1", "fix2"))
    assert (None, "common.cuh") in sources.pairs("baseline", "fix1")
    without = Sources({**files, "fix2": files["fix2"][:1]}, recorded.heat)
    assert "100 % on lines of fix2.cu, not shown here" in outline(found, without).words


def test_the_page_is_written_on_demand_and_then_kept_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    root = copy_of_repository(tmp_path)
    page = root / "reports" / "attention" / "report.html"
    assert main(["report", "fix1", "--project", str(root)]) == 0
    assert not page.exists()
    asked: list[str] = []

    def browser(url: str) -> bool:
        asked.append(url)
        return True

    monkeypatch.setattr("webbrowser.open", browser)
    assert main(["report", "fix1", "--html", "--project", str(root)]) == 0
    assert "report.html" in capsys.readouterr().err
    assert not asked
    assert main(["report", "fix1", "--open", "--project", str(root)]) == 0
    assert asked == [page.as_uri()]
    assert "step-fix1" in page.read_text(encoding="utf-8")
    for verb in ("report", "ablate"):
        page.write_text("of yesterday")
        assert main([verb, "fix1", "--project", str(root)]) == 0
        assert "step-fix1" in page.read_text(encoding="utf-8")
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert main(["report", "fix1", "--open", "--project", str(root)]) == 3
    assert "hint: open " in capsys.readouterr().err


def test_own_template_wins(tmp_path: Path) -> None:
    (tmp_path / "report.css").write_text("body { color: teal }")
    text = render_page(ablation(0), Sources(), page_environment([tmp_path, ROOT / "templates"]))
    assert "color: teal" in text
