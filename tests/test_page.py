"""The page as text: whole, the same each time, and proof against hostile words."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
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
from workbench.derive.diff.build import source_diff
from workbench.derive.diff.model import Sources
from workbench.derive.roofline.ceilings import LEVELS
from workbench.judge.rows import Ablation
from workbench.render import why
from workbench.render.canvas import text_width
from workbench.render.hunks import hunk_rows, shift_lines
from workbench.render.page import page_environment, page_model, render_page
from workbench.render.page_roofline import NARROW, WIDE, Size, drawings
from workbench.render.page_stalls import bars
from workbench.render.page_why import anatomy, times
from workbench.render.spans import spans
from workbench.render.tables import interval, number, ratio, top_stall
from workbench.study.sources import virtual_name
from workbench.words import Status
from workspaces import ROOT, copy_of_repository

VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})
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
        "The ladder",
        "Roofline",
        "Where the warps spend their time",
        "Why it got faster",
        "Where baseline loses its time",
        "Step by step",
        "What did not work",
        "Every version: figures and sources, line by line",
        "Environment and method",
        "Where each number comes from",
    ]


def test_landmarks_captions_and_names() -> None:
    page = outline(*pages.recorded())
    for tag in ("header", "nav", "main"):
        assert page.all(tag)
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(heading.get("scope") for heading in page.all("th"))
    assert all(
        svg.get("aria-label")
        or svg.get("aria-hidden")
        or svg.get("width") == "18"
        or svg.get("width") == "28"
        for svg in page.all("svg")
    )
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
            [sys.executable, "-c", script],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        ).stdout
        for seed in ("1", "2")
    }
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
    assert page.data["sources"]["baseline.cu"] == next(
        iter(sources.sides["baseline"].texts.values())
    )
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
        assert row.point is not None
        points = sum((a.get("class") or "").startswith("point") for _, a in mine)
        assert points == 2 * sum(math.isfinite(level.intensity) for level in row.point.levels)
        assert any((a.get("class") or "").startswith("bar") for _, a in mine)
        assert ("article" in tags) == (row.step is not None and row.step.parent is not None)


def test_figures_are_those_of_the_markdown_report() -> None:
    found, sources = pages.recorded()
    words = outline(found, sources).words
    row = found.row("fix4")
    best = found.best
    assert best is not None
    for text in (
        ratio(best.over_baseline),
        interval(row.over_parent),
        top_stall(row),
        f"{found.score.confirmed} of {found.score.total}",
    ):
        assert text in words
    facts = next(v for v in outline(found, sources).data["variants"] if v["name"] == "fix4")
    assert row.point is not None
    rate = number(row.point.flops_per_second / 1e12)
    assert facts["point"][0][:2] == ["Performance", f"{rate} TFLOP/s"]
    assert "dram__bytes_read.sum" in facts["point"][1][2]


def test_each_source_is_carried_once() -> None:
    found, sources = pages.recorded()
    text = pages.render(found, sources)
    line = "const size_t mine = head + static_cast"
    holders = [n for n, t in outline(found, sources).data["sources"].items() if line in t]
    assert len(holders) == text.count(line)


def test_lines_carry_their_stalls() -> None:
    found, sources = pages.recorded()
    data = outline(found, sources).data
    stalls, time, instructions, *_ = data["heat"]["baseline"]["baseline.cu"]["30"]
    assert data["reasons"][stalls[0][0]]["key"] == "long_scoreboard"
    costs = sources.sides["baseline"].costs
    assert costs is not None
    cost = costs.of("/workbench/kernels/attention/baseline.cu", 30)
    assert cost.samples is not None
    assert sum(share for _, share in stalls) == pytest.approx(cost.share, abs=1e-4)
    assert stalls[0][1] == pytest.approx(
        (cost.share or 0) * cost.stalls["long_scoreboard"] / cost.samples, abs=1e-5
    )
    assert time == pytest.approx(cost.microseconds, rel=5e-3)
    assert instructions == pytest.approx(
        (cost.instructions or 0) / (costs.total.instructions or 1), abs=1e-5
    )
    assert "sdpa" not in data["heat"]
    words = outline(found, sources).words
    assert "Costs by line are not collected: its capture has no source lines." in words


def test_the_lines_of_a_step_cost_what_they_do_where_it_is_judged() -> None:
    found, sources = pages.recorded()
    data = outline(found, sources).data
    for row in found.rows:
        if row.step is None or row.step.parent is None:
            continue
        names = [row.step.parent, row.variant]
        if row.compared_at:
            assert row.against_parent is not None
            made = row.against_parent.factors
            assert made is not None
            names = [f"{name} at {row.compared_at}" for name in names]
            durations = sources.diffs[row.variant].durations
            assert durations == pytest.approx((made.before_us, made.after_us))
        assert all(file["heat"] == names for file in data["diffs"][row.variant])
        assert set(names) <= data["heat"].keys()
    (judged_elsewhere,) = [r for r in found.rows if r.variant == "fix14"]
    costs = sources.elsewhere["fix14"][1].costs
    assert judged_elsewhere.compared_at
    assert costs is not None
    (line, cost) = max(
        ((place[1], c) for place, c in costs.lines.items() if place[0].endswith("/fix14.cu")),
        key=lambda each: each[1].share or 0,
    )
    name = f"fix14 at {judged_elsewhere.compared_at}"
    shown = data["heat"][name]["fix14.cu"][str(line)]
    assert sum(share for _, share in shown[0]) == pytest.approx(cost.share, abs=1e-4)


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
    for drawing in drawings(ablation(12), size):
        shown = [label for label in drawing["labels"] if not label["spare"]]
        assert len(shown) > 5
        keep_apart(shown, size)


def keep_apart(labels: list[dict[str, Any]], size: Size) -> None:
    boxes = []
    for label in labels:
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
    made = drawings(found, WIDE)
    assert [drawing["level"] for drawing in made] == list(LEVELS)
    for n, drawing in enumerate(made):
        at = {p["variant"]: (p["x"], p["y"]) for p in drawing["points"]}
        for a in found.everything:
            for b in found.everything:
                assert a.point is not None
                assert b.point is not None
                if a.point.flops_per_second > 1.01 * b.point.flops_per_second:
                    assert at[a.variant][1] < at[b.variant][1]
                if a.point.levels[n].intensity > 1.01 * b.point.levels[n].intensity:
                    assert at[a.variant][0] > at[b.variant][0]
        assert [arrow["kept"] for arrow in drawing["arrows"]] == [True, False, True]
    heights = [[p["y"] for p in drawing["points"]] for drawing in made]
    assert heights[0] == heights[1] == heights[2]  # the same axes at every level


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


def test_files_of_one_name_are_kept_apart_and_costs_elsewhere_are_told() -> None:
    found, recorded = pages.recorded()
    header = virtual_name("attention", "common.cuh")
    sides = dict(recorded.sides)
    for variant, text in (("baseline", "int a;\n"), ("fix1", "int a;\n"), ("fix2", "int b;\n")):
        sides[variant] = dataclasses.replace(
            sides[variant], texts={**sides[variant].texts, header: text}
        )
    diffs = {
        "fix1": source_diff(sides["baseline"], sides["fix1"]),
        "fix2": source_diff(sides["fix1"], sides["fix2"]),
    }
    data = outline(found, Sources(sides, diffs)).data
    assert data["sources"]["common.cuh"] == "int a;\n"
    assert data["sources"][header] == "int b;\n"
    pairs = {name: [(d["before"], d["after"]) for d in data["diffs"][name]] for name in diffs}
    assert not any("common.cuh" in pair for pair in pairs["fix1"])
    assert ("common.cuh", header) in pairs["fix2"]
    module = virtual_name("attention", "fix2.py")
    sides["fix2"] = dataclasses.replace(sides["fix2"], texts={module: sides["fix2"].texts[module]})
    words = outline(found, Sources(sides, {})).words
    assert re.search(r"Of all samples, \d+ % on lines of fix2.cu, not shown here", words)


def test_a_step_is_accounted_for_as_in_the_markdown_report() -> None:
    found, sources = pages.recorded()
    page = outline(found, sources)
    for row in found.rows:
        told = row.against_parent
        if told is None:
            continue
        assert told.factors is not None
        assert why.equation(told.factors) in page.words
        header, rows = hunk_rows(sources.diffs[row.variant])
        cells = [*why.rule_rows(told), *why.time_rows(told), *rows, header, *why.move_rows(told)]
        for text in (text for cell in cells for text in cell):
            assert text in page.words
        for line in shift_lines(sources.diffs[row.variant]):
            assert "".join(span["text"] for span in spans(line)) in page.words
    whole = found.whole
    assert whole is not None
    assert whole.factors is not None
    assert why.equation(whole.factors) in page.words


def test_the_bars_of_the_factors_join_up_to_the_ratio_of_the_captures() -> None:
    found = dataclasses.replace(ablation(1), whole=None)
    told = found.row("fix1").against_parent
    assert told is not None
    assert told.factors is not None
    gains = (4.0, 0.5, 2.0, 1.0)
    factors = tuple(
        dataclasses.replace(f, gain=gain)
        for f, gain in zip(told.factors.factors, gains, strict=True)
    )
    made = anatomy(dataclasses.replace(told.factors, factors=factors, measured=4.0))
    bars = [row["bar"] for row in made["rows"]]
    assert [bar["faster"] for bar in bars] == [True, False, True, True]
    ends = [(bar["x"], bar["x"] + bar["width"]) for bar in bars]
    assert ends[0][0] == made["one"]
    assert ends[1][1] == pytest.approx(ends[0][1], abs=0.02)  # a loss starts where the gain ended
    assert ends[2][0] == pytest.approx(ends[1][0], abs=0.02)
    total = made["total"]["bar"]
    assert (total["x"], total["x"] + total["width"]) == pytest.approx(
        (made["one"], ends[2][1]), abs=0.02
    )
    assert bars[1]["width"] == pytest.approx(bars[0]["width"] / 2, abs=0.02)


def test_bars_of_stall_time_are_on_one_scale() -> None:
    found, _ = pages.recorded()
    told = found.row("fix1").against_parent
    assert told is not None
    shown = [entry["key"] for entry in page_model(found, Sources())["stalls"]["reasons"]]
    before, after = times(told, shown)["bars"]
    wide = [sum(part["width"] for part in bar["parts"]) for bar in (before, after)]
    assert told.factors is not None
    assert wide[0] == pytest.approx(100, abs=0.02)
    assert wide[0] / wide[1] == pytest.approx(told.factors.measured, rel=1e-3)


def test_an_adopted_capture_is_marked_wherever_it_is_shown() -> None:
    found = with_row(
        ablation(2),
        "fix2",
        status=Status.ADOPTED,
        adopted={"file": "theirs.ncu-rep"},
        warm=None,
        cold=None,
        over_parent=None,
        over_baseline=None,
    )
    page = outline(found)
    assert "adopted from theirs.ncu-rep" in page.words
    assert "adopted, not timed" in page.words
    assert page.words.count("fix2 (adopted)") >= 8  # ladder, points, bar, tables, step, sources
    (told,) = [v for v in page.data["variants"] if v["name"] == "fix2"]
    assert told["label"] == "fix2 (adopted)"


def test_the_page_is_written_on_demand_and_then_kept_up_to_date(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
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
