"""JSON, CSV and HTML for other programs: keys, numbers, and a column in every output."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tools import reference

import workbench as wb
from answers import Capsys, Patch, error_of, json_of, published, text_of
from made_ladder import ablation, with_row
from workbench.cli import schema as schema_of
from workbench.cli import try_
from workbench.judge.ladder import Ablation
from workbench.judge.rows import Row
from workbench.render import in_short, markdown, terminal
from workbench.render.as_table import as_csv, frame, safe
from workbench.render.chart.svg import Drawing
from workbench.render.doc import (
    Block,
    Bullets,
    Callout,
    Cell,
    CodeBlock,
    Field,
    Fold,
    Marking,
    Paragraph,
    Section,
    SourceChange,
    Span,
    Table,
    TableRow,
    code,
    line,
)
from workbench.render.document.printed_ladder import (
    COLUMNS,
    LadderColumn,
    Where,
    ladder_table,
    screen,
)
from workbench.render.page import Writer, anchor
from workspaces import FIXTURE, ROOT, output_of

DOCS = (ROOT / "docs" / "json.md").read_text()
SCHEMA = reference.schema()["$defs"]
MOST = 120
# Objects whose keys are data: regimes, gates, stall reasons, shapes, or what a finding is about.
BY_DATA = ("regimes", "gates", "stalls", "newer", "values", "files")


def names(value: Any, key: str = "") -> set[str]:
    """The keys of all objects that are names of fields."""
    if isinstance(value, list):
        return set().union(*(names(each) for each in value))
    if not isinstance(value, dict):
        return set()
    if key == "shape":  # the rest are the study's parameters
        return {"name"}
    inside = set().union(*(names(each, name) for name, each in value.items()))
    return inside if key in BY_DATA else inside | value.keys()


def keys_of(command: str) -> set[str]:
    long = " --full" if command == "ablate" else ""
    return names(json.loads(output_of(f"{command}{long} --study attention --json")))


def test_key_names_are_few() -> None:
    assert 80 < len(keys_of("ablate")) <= MOST


@pytest.mark.parametrize("command", ["ablate", "show fix9 --source --sass", "advise fix9"])
def test_the_schema_and_the_page_explain_every_key(command: str) -> None:
    every = [keys for record in SCHEMA.values() for keys in record.get("properties", {}).items()]
    told = [(key, of["description"]) for key, of in every if "description" in of]
    named = re.findall(r"`([a-z_0-9]+)`", " ".join([DOCS, *(text for _, text in told)]))
    assert keys_of(command) - {key for key, _ in told} - {*named} == set()


def test_every_record_that_the_page_names_is_in_the_schema() -> None:
    assert set(re.findall(r"`([A-Z][a-z]\w+)`", DOCS)) <= SCHEMA.keys()


def test_the_schema_of_json_is_made_from_the_records() -> None:
    assert reference.SCHEMA.read_text() == reference.schema_file()
    assert {*reference.VERBS} >= {*schema_of.VERBS} - {"ship"}


def test_a_schema_of_json_refuses_a_key_that_no_record_has(capsys: Capsys) -> None:
    told = json_of(capsys, "advise", "fix2", project=FIXTURE)
    validator = published("advise", short=False)
    validator.validate(told)
    told["advice"][0]["limit"]["nosuch"] = 1
    assert not validator.is_valid(told)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "ablate --study attention",
        "ablate --full --all-shapes --study softmax",
        f"show {ROOT}/tests/recorded/ncu-raw.ncu-repz --launch 0",
        "show tiled --source --sass --study transpose",
        "diff tiled padded --study transpose",
        "profile fix6 --study attention",
        "check fix30 --study attention",
    ],
)
def test_every_recorded_answer_is_as_its_schema_has_it(command: str, capsys: Capsys) -> None:
    where = None if ".ncu" in command else ROOT
    told = json.loads(text_of(capsys, *command.split(), "--json", project=where))
    published(command.split()[0], short=False).validate(told)


# ---- CSV
Rows = list[dict[str, str]]


def printed(capsys: Capsys, *arguments: str) -> Rows:
    text = text_of(capsys, *arguments, "--csv", project=FIXTURE)
    return list(csv.DictReader(text.splitlines()))


def test_the_ladder_has_numbers_with_their_intervals(capsys: Capsys) -> None:
    every = printed(capsys, "ablate", "fix1", "--study", "attention")
    rows = {row["variant"]: row for row in every}
    fix1, over = rows["fix1"], "speedup_over_parent"
    assert fix1["verdict"] == "kept"
    low, value, high = (float(fix1[f"{over}{end}"]) for end in ("_low", "", "_high"))
    assert low < value < high
    assert len(fix1["microseconds"]) > len("209.786")  # not rounded
    assert rows["baseline"][over] == ""


def test_show_and_profile_have_the_figures(capsys: Capsys) -> None:
    rows = printed(capsys, "show", "tma", "--study", "transpose")
    assert list(rows[0]) == ["figure", "label", "value", "unit", "metric"]
    assert float(rows[0]["value"]) > 1
    both = printed(capsys, "profile", "tma", "padded", "--study", "transpose")
    assert {row["variant"] for row in both} == {"tma", "padded"}


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@sum", "-1+1"])
def test_what_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    assert safe(text) == f"'{text}"
    assert as_csv(frame([{"a": text, "b": 0.5}], "a")) == f"a,b\n'{text},0.5"


@pytest.mark.parametrize("value", [-1.5, 2, "-3e-4", "plain", True])
def test_numbers_and_words_are_left_alone(value: object) -> None:
    assert safe(value) == (str(value).lower() if value is True else str(value))


def test_lines_are_no_table(capsys: Capsys) -> None:
    error_of(capsys, "show", "tma", "--source", "--csv", "--study", "transpose", project=FIXTURE)


# ---- columns
def on_terminal(found: Ablation) -> str:
    text = io.StringIO()
    terminal.write([ladder_table(found)], Console(file=text, width=300, color_system=None))
    return text.getvalue()


def as_markdown(found: Ablation) -> str:
    return markdown.blocks([ladder_table(found)])


def as_html(found: Ablation) -> str:
    return Writer({}).blocks([ladder_table(found)])


@pytest.mark.parametrize("write", [on_terminal, as_markdown, as_html])
def test_a_column_without_any_value_is_left_out(write: Callable[[Ablation], str]) -> None:
    found = ablation(2)
    assert "÷" in write(found)
    for row in found.everything:
        found = with_row(found, row.variant, accuracy=None)
    assert "÷" not in write(found)


def outputs(capsys: Capsys, folder: Path) -> Mapping[Where, str]:
    """The ladder of the fixture's transpose in each output."""
    own = ("--study", "transpose")

    def printed(*arguments: str) -> str:
        return text_of(capsys, *arguments, *own, project=FIXTURE)

    printed("report", "--html")
    page = (folder / "report.html").read_text()
    ladder = wb.study("transpose", project=FIXTURE).evidence().ladder
    drawn = io.StringIO()
    terminal.write(screen(ladder), Console(file=drawn, width=300, color_system=None))
    found = {
        Where.SCREEN: f"{drawn.getvalue()} {printed('ablate')}",
        Where.REPORT: f"{(folder / 'OPTIMIZATION_REPORT.md').read_text()} {page}",
        Where.PAGE: f"{page} {printed('ablate', '--all')}",
        Where.TRY: markdown.blocks(try_.times_and_limits(ladder.rows[1], ladder, profiled=True)),
        Where.CSV: f"{printed('ablate', '--csv')} {ladder.table().to_csv()}",
        Where.JSON: printed("ablate", "--json", "--full"),
        Where.BRIEF: json.dumps(json.loads(printed("ablate", "--brief"))["variants"]),
        Where.BRIEF_VARIANT: printed("advise", "tiled", "--brief"),
    }
    assert set(found) == set(Where)
    return found


def constant(value: float) -> Callable[[Row], float]:
    return lambda _: value


def test_a_column_is_one_entry_and_stands_in_every_output_that_it_names(
    capsys: Capsys, monkeypatch: Patch, tmp_path: Path
) -> None:
    """A column for each output is added: it has that one alone, twice where it is printed twice."""
    monkeypatch.setattr("workbench.study.workspace.Workspace.reports", lambda *_: tmp_path)
    added = {
        where: LadderColumn(
            f"key_{where.name}",
            f"Heading {where.name}",
            f"Meaning {where.name}",
            constant(7301.0 + place),
            frozenset({where}),
            rank=0,
        )
        for place, where in enumerate(Where)
    }
    more = (*COLUMNS, *added.values())
    monkeypatch.setattr("workbench.render.document.printed_ladder.COLUMNS", more)
    known = outputs(capsys, tmp_path)
    for place, (where, column) in enumerate(added.items()):
        by_key = where in (Where.CSV, Where.JSON, Where.BRIEF, Where.BRIEF_VARIANT)
        name, value = column.key if by_key else column.heading, rf"\b{7301 + place}\b"
        for output, text in known.items():
            if {output, where} != {Where.PAGE, Where.REPORT}:  # the page is in both
                for told in (rf"{name}\b", value):
                    assert bool(re.search(told, text)) == (where == output), (name, output)
        twice = {Where.SCREEN, Where.REPORT, Where.PAGE, Where.CSV}
        assert len(re.findall(value, known[where])) >= 1 + (where in twice)
        assert f"`{column.key}`" in reference.columns()
    assert 'title="Meaning PAGE"' in known[Where.PAGE]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    text = io.StringIO()
    out = Console(file=text, width=width, color_system=None)
    terminal.write([ladder_table(ablation(12))], out)
    shown, _, _ = text.getvalue().partition("more with --markdown")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    # A row a line: nothing wraps.
    assert sum(line.startswith(("fix", "baseline", "sdpa")) for line in lines) == 17


def test_what_is_needed_most_stays_where_there_is_little_room() -> None:
    shown = ladder_table(ablation(3), Where.SCREEN)
    narrow = [each.column.key for each in terminal.fitted(shown, 80)[0]]
    ratios = ["speedup_over_parent", "speedup_over_fastest"]
    assert narrow == ["variant", "microseconds", *ratios, "memory", "verdict", "key_change"]
    wide = terminal.fitted(shown, 300)[0]
    assert {each.column.key for each in wide} == {column.key for column in shown.columns}
    assert all(each.width == each.full for each in wide)


# ---- HTML
WRITER = Writer({"fix1[a=2]": "step-fix1-a-2"})


def written(*blocks: Block) -> str:
    return WRITER.blocks(blocks)


@pytest.mark.parametrize(
    ("block", "html"),
    [
        (Paragraph(line("a < b")), "<p>a &lt; b</p>"),
        (Paragraph((Span("x", strong=True, code=True),)), "<strong><code>x</code></strong>"),
        (Paragraph((Span("so", em=True),)), "<p><em>so</em></p>"),
        (Bullets((line("a"), line("b"))), "<ul><li>a</li><li>b</li></ul>"),
        (Bullets((line("a"),), ordered=True), "<ol><li>a</li></ol>"),
        (Callout((line("a"),)), "<strong>Read this first</strong><ul><li>a</li></ul></div>"),
        (CodeBlock("a\n<b>"), '<pre tabindex="0"><code>a\n&lt;b&gt;</code></pre>'),
        (Drawing("roofline", "alt", "read", "", "", lambda _: 1.0), "<figcaption"),
        (Fold(line("more"), (Paragraph(line("a")),)), "<details><summary>more</summary>\n<p>"),
        (Fold(line("diff"), (SourceChange("fix1"),)), "<details open><summary>"),
        (SourceChange("fix1"), '<div class="diffs" data-diff="fix1">'),
        (Section("why", line("Why"), ()), '<section id="why" tabindex="-1"'),
        (Section("result", (), (Paragraph(line("a")),)), "<p>a</p>"),
    ],
)
def test_blocks(block: Block, html: str) -> None:
    assert html in written(block)


def test_headings_go_down_with_their_sections_and_stop_at_h6() -> None:
    deep = Section("a7", line("7"), ())
    for n in range(6, 0, -1):
        deep = Section(f"a{n}", line(str(n)), (deep,))
    text = written(deep)
    for level, title in ((2, "1"), (3, "2"), (6, "5"), (6, "6"), (6, "7")):
        assert f'<h{level} id="a{title}--title">{title}</h{level}>' in text


@pytest.mark.parametrize(
    ("href", "led"),
    [
        ("#fix 1", 'href="#fix%201"'),
        ("https://x.y", 'href="https://x.y" rel="noreferrer"'),
        ("javascript:x", ""),
        ("report.html", ""),
    ],
)
def test_links_lead_to_the_page_and_to_the_web_alone(href: str, led: str) -> None:
    text = written(Paragraph((Span("t", href=href),)))
    assert text == (f"<p><a {led}>t</a></p>" if led else "<p>t</p>")


def test_the_name_of_a_step_leads_to_it() -> None:
    named = f'<a href="#{anchor("step-fix1-a-2")}">'
    assert named in written(Paragraph(line("as ", code("fix1[a=2]"))))
    assert named not in written(Paragraph(line("fix1[a=2]")))
    row = TableRow({"version": Cell(line("fix1[a=2]"))}, key="fix1[a=2]")
    assert named in written(Table("times", (Field("version", "version", str),), (row,)))


def test_a_table_names_its_columns_and_marks_its_words() -> None:
    columns = (
        Field("version", "version", str),
        Field("time", "time", str, "µs", is_number=True, source="samples in t.json"),
        Field("verdict", "verdict", str),
        Field("result", "result", str),
    )
    plain = {"version": "fix1", "verdict": "kept at large", "result": "refuted"}
    cells = {name: Cell(line(text)) for name, text in plain.items()}
    cells["time"] = Cell(line("4.31"), sort=4.31, note="[4.30, 4.32]")
    row = TableRow(cells, key="fix1", kind=Marking.KEPT)
    ladder = written(Table("ladder", columns, (row,)))
    for part in (
        '<tr class="kept" data-key="fix1"><th scope="row">fix1</th>',
        'data-sort="4.31" data-label="time (µs)">4.31<small>[4.30, 4.32]</small></td>',
        '<th scope="col" class="n c-time" title="samples in t.json"><button',
        '<span class="mark kept">kept at large</span>',
        '<span class="mark bad">refuted</span>',
    ):
        assert part in ladder
    other = written(Table("times", columns, (row,)))
    assert not [word for word in ("data-sort", "<button") if word in other]


@pytest.mark.parametrize("study", [pytest.param("moe", marks=pytest.mark.slow), "transpose"])
def test_the_json_of_a_ladder_is_short_unless_all_of_it_is_asked_for(
    study: str, capsys: Capsys
) -> None:
    """Each key has the value that it has in full."""
    for verb in ("list", "ablate"):
        words = (verb, "--study", study, "--json")
        short, full = (text_of(capsys, *words, *more, project=ROOT) for more in ((), ("--full",)))
        assert len(short) <= in_short.MOST
        some, every = json.loads(short), json.loads(full)
        assert "left_out" not in some
        for each in (some, every):
            published(verb, short=False).validate(each)
        assert_within(some, every)


def assert_within(some: Any, every: Any) -> None:
    if isinstance(some, dict):
        for key, value in some.items():
            assert_within(value, every[key])
    elif isinstance(some, list):
        for one, other in zip(some, every, strict=True):
            assert_within(one, other)
    else:
        assert some == every
