"""Text from outside, written to Markdown, a terminal, a page, charts, JSON and file names."""

from __future__ import annotations

import io
import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from hypothesis import Phase, example, given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console

import pages
from answers import Capsys
from hostile_texts import WORST, steering, texts
from property_cases import examples
from workbench.cli.main import complain
from workbench.errors import UsageError
from workbench.judge.ladder import Ablation
from workbench.render import answers, as_json, markdown, page, terminal
from workbench.render.chart import svg
from workbench.render.chart.charts import chart_files
from workbench.render.doc import (
    Cell,
    Chart,
    CodeBlock,
    Field,
    Fold,
    Paragraph,
    Section,
    Span,
    Table,
    TableRow,
    authored,
    line,
)
from workbench.render.document.ladder_report import report, summary
from workbench.render.text import harmless, printable
from workbench.study.workspace import folder_name

COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# The markup that the writer itself writes: folds, and charts beside the report.
OWN = re.compile(
    r"\s*(<details>|</details>|<summary>[^<>]*</summary>|<picture>|</picture>"
    r'|<source media="[^"<>]*" srcset="[\w-]+\.svg">|<img alt="[^"<>]*" src="[\w-]+\.svg">'
    r"|\s)*"
)
STYLE = re.compile(r"\x1b\[[\d;]*m")
TURNING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
ABROAD = "https://evil.example"


def tokens(text: str) -> Iterator[Token]:
    for block in COMMONMARK.parse(text):
        yield block
        yield from block.children or ()


def assert_harmless_markdown(text: str) -> None:
    assert not steering(text, "\n\t")
    for token in tokens(text):
        assert token.type != "image", token.attrs
        if token.type in ("html_block", "html_inline"):
            assert OWN.fullmatch(token.content), token.content
        if token.type == "link_open":
            assert str(token.attrs["href"]).startswith(("https://", "http://", "#"))


@settings(max_examples=examples(60, many=2500))
@given(texts)
@example("![alt](https://evil.example/x.png)")
@example("\\![alt](https://evil.example/x.png)")
@example("!**[x](https://evil.example/x.png)**")
@example(WORST)
def test_what_an_author_writes_is_words_and_links(text: str) -> None:
    assert_harmless_markdown(markdown.paragraph(authored(text)))


@settings(max_examples=examples(60, many=2000))
@given(texts, texts)
@example("a\\|<img src=x>", "b")
@example("!", "[x](https://evil.example/x.png)")
@example("x", "![x](https://evil.example/x.png)")
@example(WORST, WORST)
def test_names_stay_in_their_cells(text: str, other: str) -> None:
    columns = (Field("a", text, str, note=other), Field("b", "b", str), Field("c", "c", str))
    code, plain = Cell((Span(text, code=True),), note=other), Cell((Span(text), Span(other)))
    row = TableRow({"a": code, "b": plain, "c": Cell(line("last"))}, text)
    written = markdown.table(Table("t", columns, (row,)))
    assert_harmless_markdown(written)
    assert sum(token.type == "td_open" for token in tokens(written)) == 3
    assert written.count("\n") == 2


@settings(max_examples=examples(40, many=1000))
@given(texts)
@example(WORST)
def test_blocks_of_every_kind_keep_their_text(text: str) -> None:
    spans = (Span("!"), Span(text, em=True), Span(text, code=True, href=ABROAD), Span(text))
    content = (
        Section("s", line(text), (Paragraph(spans), CodeBlock(text, ""))),
        Fold(line(text), (Paragraph(authored(text)),)),
        Chart("roofline", text, text),
    )
    written = markdown.blocks(content)
    assert_harmless_markdown(written)
    assert written.count("</details>") >= 1
    steady = io.StringIO()
    console = Console(file=steady, force_terminal=True, color_system="standard", width=80)
    terminal.write(content, console)
    assert not steering(STYLE.sub("", steady.getvalue()))


@settings(max_examples=examples(60, many=1500))
@given(texts)
@example(WORST)
def test_nothing_steers_a_terminal(text: str) -> None:
    assert not steering(printable(text), "")
    assert not steering(harmless(text), "\n\t")
    assert printable(printable(text)) == printable(text)


def test_errors_are_made_printable(capsys: Capsys) -> None:
    complain(UsageError(WORST, hint=WORST, ran=WORST))
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert "hint: " in told
    assert not steering(told)


@settings(max_examples=examples(60, many=1500))
@given(texts)
@example(WORST)
def test_labels_of_charts_are_well_formed(text: str) -> None:

    def fill(canvas: svg.Canvas) -> float:
        canvas.text((0, 0), text)
        canvas.sign((0, 0), svg.KEPT, f"{text}.")
        return 10

    drawing = svg.Drawing("times", text, text, text, text, fill)
    head = svg.Canvas()
    head.wrapped((0, 0), text, svg.TEXT, svg.LINE)
    lines = len(head) + 1
    for picture in (drawing.svg(), f"<div>{drawing.inline()}</div>"):
        root = ElementTree.fromstring(picture.encode())
        every = list(root.iter())
        assert len(every) <= 9 + lines
        labels = [each.attrib.get("aria-label", "") for each in every]
        shown_text = "".join([*root.itertext(), *labels])
        assert not set(shown_text) & TURNING
        told = (c for c in shown_text if c not in "\t\r\n")
        assert not {c for c in told if unicodedata.category(c) in ("Cc", "Cs")}


@settings(max_examples=examples(40, many=1000))
@given(texts)
@example("../../etc/passwd")
@example("..")
@example("a" * 300)
def test_a_folder_of_its_own_stays_where_it_belongs(text: str) -> None:
    name = folder_name([text, text])
    assert re.fullmatch(r"[\w.,=+\[\]-]+", name, re.ASCII)
    assert name not in (".", "..")
    assert len(name.encode()) < 120


def test_names_that_differ_have_folders_that_differ() -> None:
    assert folder_name(["fix1", "fix2"]) == "fix1+fix2"
    assert folder_name(["fix2[warps=12]"]) == "fix2[warps=12]"
    assert folder_name(["a/b"]) != folder_name(["a:b"])


OF_THE_PAGE = ("script", "style", "link", "title", "form")


class Elements(pages.Outline):
    """What a page is made of, and where it would look for more."""

    @property
    def kinds(self) -> Counter[str]:
        return Counter(tag for tag, _ in self.tags)

    @property
    def attributes(self) -> set[str]:
        return {name for _, attributes in self.tags for name in attributes}

    def values(self, *names: str) -> set[str]:
        every = (attributes.items() for _, attributes in self.tags)
        return {value or "" for name, value in chain(*every) if name in names}

    @property
    def resources(self) -> set[str]:
        return self.values("src", "srcset", "action", "data", "poster", "background")

    @property
    def links(self) -> set[str]:
        return {each for each in self.values("href", "xlink:href") if not each.startswith("#")}


def assert_every_output_harmless(found: Ablation, text: str) -> None:
    for name, content in chart_files(found).items():
        ElementTree.fromstring(content.encode())
        assert not set(content) & TURNING, name
    parsed, own = Elements(text), Elements(pages.recorded_page())
    assert parsed.kinds.keys() <= own.kinds.keys() | {"em", "strong", "code", "a"}
    assert parsed.attributes <= own.attributes
    marks = [
        e
        for drawing in pages.charts_of(found)
        for width in (svg.WIDTH, svg.PHONE)
        for e in drawing.on(width)
        if "<title>" in e
    ]
    own_kinds = {"script": own.kinds["script"], "title": 1 + len(marks)}
    wanted = dict.fromkeys(OF_THE_PAGE, 1) | own_kinds
    assert {name: parsed.kinds[name] for name in OF_THE_PAGE} == wanted
    assert parsed.resources <= own.resources
    assert all(each.startswith(("https://", "http://")) for each in parsed.links - own.links)
    data = as_json.dumps(answers.ablation(found))
    assert data.isascii()
    assert not steering(data)
    assert isinstance(json.loads(data), dict)


@settings(max_examples=examples(1, many=150), phases=(Phase.explicit, Phase.generate))
@given(texts)
@example(WORST)
def test_a_hostile_workspace_comes_out_harmless_everywhere(text: str) -> None:
    found, sources = pages.hostile(text)
    assert_harmless_markdown(markdown.document(summary(found)))
    assert_harmless_markdown(markdown.blocks(report(found, sources.diffs).blocks))
    assert_every_output_harmless(found, pages.render(found, sources))
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=120)
    terminal.write(report(found, sources.diffs).blocks, console)
    assert not steering(STYLE.sub("", console.file.getvalue()))  # type: ignore[attr-defined]


@settings(max_examples=examples(30, many=500))
@given(texts)
def test_attributes_and_elements_of_a_page_hold_what_they_are_given(text: str) -> None:
    section = Section("key", line(text or "x"), (), variant=text or "x")
    parsed = Elements(page.Writer({}).blocks([section]))
    assert parsed.kinds == {"article": 1, "h2": 1}
    assert parsed.attributes == {"id", "class", "data-variant", "tabindex", "aria-labelledby"}
