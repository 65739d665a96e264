"""The writer of blocks into HTML: every block, and nothing that is not escaped."""

from __future__ import annotations

import re

import pytest

from workbench.render.document.blocks import (
    Align,
    Block,
    Bullets,
    Callout,
    Cell,
    Chart,
    CodeBlock,
    Fold,
    Marking,
    Paragraph,
    Section,
    SourceChange,
    Span,
    Table,
    TableColumn,
    TableRow,
    code,
    line,
    words,
)
from workbench.render.html import Writer, anchor

WRITER = Writer(charts={"roofline": "<svg></svg>"}, steps={"fix1[a=2]": "step-fix1-a-2"})
NASTY = '</p><script>alert("1")</script>'
SAFE = "&lt;/p&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;"


def written(*blocks: Block) -> str:
    return WRITER.blocks(blocks)


@pytest.mark.parametrize(
    ("block", "html"),
    [
        (Paragraph(words("a < b")), "<p>a &lt; b</p>"),
        (Paragraph((Span("x", strong=True, code=True),)), "<strong><code>x</code></strong>"),
        (Paragraph((Span("so", em=True),)), "<p><em>so</em></p>"),
        (Bullets((words("a"), words("b"))), "<ul><li>a</li><li>b</li></ul>"),
        (Bullets((words("a"),), ordered=True), "<ol><li>a</li></ol>"),
        (Callout("Look", (words("a"),)), "<strong>Look</strong><ul><li>a</li></ul></div>"),
        (CodeBlock("a\n<b>"), '<pre tabindex="0"><code>a\n&lt;b&gt;</code></pre>'),
        (Chart("roofline", "alt", words("read")), "<svg></svg><figcaption"),
        (Fold(words("more"), (Paragraph(words("a")),)), "<details><summary>more</summary>\n<p>"),
        (Fold(words("diff"), (SourceChange("fix1", "baseline"),)), "<details open><summary>"),
        (SourceChange("fix1", "baseline"), '<div class="diffs" data-diff="fix1">'),
        (Section("why", words("Why"), ()), '<section id="why" tabindex="-1"'),
        (Section("result", (), (Paragraph(words("a")),)), "<p>a</p>"),
    ],
)
def test_blocks(block: Block, html: str) -> None:
    assert html in written(block)


def test_headings_go_down_with_their_sections_and_stop_at_h6() -> None:
    deep = Section("a7", words("7"), ())
    for n in range(6, 0, -1):
        deep = Section(f"a{n}", words(str(n)), (deep,))
    text = written(deep)
    for level, title in ((2, "1"), (3, "2"), (6, "5"), (6, "6"), (6, "7")):
        assert f'<h{level} id="a{title}--title">{title}</h{level}>' in text


def test_everything_is_escaped() -> None:
    column = TableColumn(NASTY, NASTY, NASTY, source=NASTY, note=NASTY)
    cell = Cell(words(NASTY), sort=NASTY, note=NASTY)
    row = TableRow({NASTY: cell}, key=NASTY)
    text = written(
        Paragraph((Span(NASTY, code=True, strong=True, em=True, href=f"https://x/{NASTY}"),)),
        Callout(NASTY, (words(NASTY),)),
        CodeBlock(NASTY, NASTY),
        Chart(NASTY, NASTY, words(NASTY)),
        SourceChange(NASTY, NASTY),
        Fold(words(NASTY), ()),
        Table("ladder", (column, column), (row,)),
        Table("other", (column, column), (row,)),
        Section(NASTY, words(NASTY), (Section(NASTY, words(NASTY), (), Marking.KEPT, NASTY),)),
    )
    assert "<script" not in text
    assert text.count("</p>") == len(re.findall("<p[ >]", text))
    assert SAFE in text


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
    assert named not in written(Paragraph(words("fix1[a=2]")))
    row = TableRow({"version": Cell(words("fix1[a=2]"))}, key="fix1[a=2]")
    assert named in written(Table("times", (TableColumn("version", "version"),), (row,)))


def test_a_table_names_its_columns_and_marks_its_words() -> None:
    columns = (
        TableColumn("version", "version"),
        TableColumn("time", "time", "µs", Align.RIGHT, source="samples in t.json"),
        TableColumn("verdict", "verdict"),
        TableColumn("result", "result"),
    )
    cells = {
        "version": Cell(words("fix1")),
        "time": Cell(words("4.31"), sort=4.31, note="[4.30, 4.32]"),
        "verdict": Cell(words("kept at large")),
        "result": Cell(words("refuted")),
    }
    row = TableRow(cells, key="fix1", kind=Marking.KEPT)
    ladder = written(Table("ladder", columns, (row,)))
    assert '<tr class="kept" data-key="fix1"><th scope="row">fix1</th>' in ladder
    assert 'data-sort="4.31" data-label="time (µs)">4.31<small>[4.30, 4.32]</small></td>' in ladder
    assert '<th scope="col" class="n c-time" title="samples in t.json"><button' in ladder
    assert '<span class="mark kept">kept at large</span>' in ladder
    assert '<span class="mark bad">refuted</span>' in ladder
    plain = written(Table("times", columns, (row,)))
    assert "data-sort" not in plain
    assert "<button" not in plain
    missing = TableRow({"version": Cell(words("fix2"))})
    assert written(Table("times", columns, (missing,))).count("<td") == 3


def test_steps_stand_beside_a_list_of_them() -> None:
    steps = tuple(
        Section(f"step-{name}", words(f"{name}: more"), (), kind, name, word)
        for name, kind, word in (
            ("fix1", Marking.KEPT, "kept"),
            ("fix2", Marking.REJECTED, "slower"),
        )
    )
    text = written(Section("steps", words("Steps"), (Paragraph(words("first")), *steps)))
    listed = text[text.index("<nav") : text.index("</nav>")]
    assert listed.count("<li>") == 2
    assert '<a href="#step-fix2" data-variant="fix2">' in listed
    assert '<span class="mark rejected">slower</span>' in listed
    assert text.index("first") < text.index("<nav")
    assert '<article id="step-fix1" class="step kept" data-variant="fix1"' in text
