"""The page in a real headless Chromium, the machine's own; skipped where there is none."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest

import pages
from workbench.render.hunks import costs, hunk_rows, where
from workbench.render.narrative import microseconds
from workbench.render.tables import percent
from workbench.study.sources import virtual_name

sync_api = pytest.importorskip("playwright.sync_api", reason="the test extra brings playwright")
from playwright.sync_api import Browser, Page, expect  # noqa: E402

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
Scheme = Literal["light", "dark"]
DESKTOP, PHONE = (1366, 900), (390, 844)
MOST_SECONDS = 1.0
BLUE = "rgb(0, 104, 176)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield found
        found.close()


class Desk:
    """Opens pages, and keeps what they said on the console and asked of the network."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.said: list[str] = []
        self.asked: list[str] = []

    def open(
        self,
        text: str,
        *,
        size: tuple[int, int] = DESKTOP,
        scheme: Scheme = "light",
        hash_: str = "",
        scripts: bool = True,
    ) -> Page:
        path = self.folder / "report.html"
        path.write_text(text, encoding="utf-8")
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri() + hash_)
        return page


@pytest.fixture
def desk(browser: Browser, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(browser, tmp_path)
    yield desk
    for context in browser.contexts:
        context.close()
    assert desk.said == []
    assert all(url.startswith(("file:", "data:")) for url in desk.asked)


def versions(page: Page) -> list[str]:
    return page.locator("#ladder-table tbody th").all_inner_texts()


def chosen(page: Page) -> dict[str, set[str]]:
    """The marked versions, by what marks them."""
    found: dict[str, set[str]] = {}
    kinds = {
        "row": "#ladder-table tr",
        "point": "g.point",
        "name": "text.name",
        "bar": ".bar",
        "step": "article",
        "sources": "details.variant",
    }
    for kind, selector in kinds.items():
        marked = page.locator(f"{selector}.chosen").evaluate_all(
            "all => all.map(each => each.dataset.variant)"
        )
        found[kind] = set(marked)
    return found


EVERYWHERE = ("row", "point", "name", "bar", "step", "sources")


def test_it_opens_whole_and_silent(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    expect(page.locator("h1")).to_have_text("Flash attention forward on Hopper")
    for name, diff in pages.recorded()[1].diffs.items():
        tables = page.locator(f'[data-diff="{name}"] table')
        if diff.hunks:
            expect(tables.first).to_be_attached()
        else:  # a variant that is another with other parameters
            expect(tables).to_have_count(0)
    expect(page.locator('[data-source="fix4.cu"] tbody tr')).to_have_count(len(source("fix4")))
    assert page.evaluate("document.documentElement.scrollWidth") == DESKTOP[0]


def test_hovering_a_point_shows_its_figures_and_their_metrics(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    tip = page.locator("#tip")
    expect(tip).to_be_hidden()
    page.locator("[data-level=dram] svg.wide g.point[data-variant=fix3]").hover()
    expect(tip).to_be_visible()
    point = pages.recorded()[0].row("fix3").point
    assert point is not None
    for text in (
        "fix3, kept",
        "TFLOP/s",
        f"{percent(point.compute_share)} of its peak",
        "L1 intensity",
        "gpu__time_duration.sum",
        "dram__bytes_read.sum",
    ):
        expect(tip).to_contain_text(text)
    box = tip.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= DESKTOP[0]
    page.locator("h1").hover()
    expect(tip).to_be_hidden()


def test_the_level_of_the_roofline_is_chosen_by_mouse_and_by_keyboard(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())

    def shown() -> list[str]:
        found = page.locator(".level").evaluate_all(
            "all => all.filter(each => each.checkVisibility()).map(each => each.dataset.level)"
        )
        return [str(name) for name in found]

    assert shown() == ["dram"]
    page.locator("label[for=level-l1]").click()
    assert shown() == ["l1"]
    page.locator("[data-level=l1] svg.wide g.point[data-variant=baseline]").click()
    assert chosen(page)["row"] == {"baseline"}
    page.locator("#level-l1").focus()
    page.keyboard.press("ArrowLeft")
    assert shown() == ["l2"]
    expect(page.get_by_role("radio", name="L2 to the SMs")).to_be_checked()
    expect(page.locator("[data-level=l2] svg.wide")).to_contain_text("L2:")
    page.emulate_media(media="print")
    assert shown() == ["dram", "l2", "l1"]


def test_a_hunk_of_the_table_leads_to_its_lines(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    button = page.locator("#step-fix4 .to-hunk").last
    number = button.get_attribute("data-hunk")
    button.click()
    heading = page.locator(f'[data-hunk="fix4/{number}"]')
    expect(heading).to_be_focused()
    expect(heading).to_be_in_viewport()
    hunk = next(h for h in pages.recorded()[1].diffs["fix4"].hunks if str(h.number) == number)
    for text in (where(hunk), *costs(hunk)):
        expect(heading).to_contain_text(text)
    rows = page.locator("#step-fix4 .hunks tbody tr")
    expect(rows).to_have_count(len(hunk_rows(pages.recorded()[1].diffs["fix4"])[1]))


def test_focusing_a_point_shows_its_figures_too(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    point = page.locator("[data-level=dram] svg.wide g.point").first
    page.locator("#roofline-title").scroll_into_view_if_needed()
    point.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#tip")).to_contain_text("fix1, kept")
    focused = page.locator("[data-level=dram] svg.wide g.point[data-variant=fix1]")
    expect(focused).to_be_focused()
    expect(focused).to_have_attribute("aria-describedby", "tip")
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()


def test_hovering_a_part_of_a_bar_names_the_reason(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    page.locator(".bar[data-variant=baseline] [data-part=long_scoreboard]").hover()
    tip = page.locator("#tip")
    expect(tip).to_contain_text("long scoreboard")
    expect(tip).to_contain_text("76 % of samples")
    expect(tip).to_contain_text("smsp__pcsamp_warps_issue_stalled_long_scoreboard")
    page.locator(".bar[data-variant=sdpa_flash] [data-part=other]").hover()
    expect(tip).to_contain_text("drain")


def test_hovering_a_strip_gives_the_reasons_of_the_line(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    cell = page.locator('[data-diff=fix1] td.heat[data-line="30"][data-file="baseline.cu"]')
    expect(cell).to_contain_text("59 %")
    expect(cell).to_contain_text("mostly long scoreboard")
    cell.hover()
    expect(page.locator("#tip")).to_contain_text("long scoreboard")
    expect(page.locator("#tip")).to_contain_text("of executed instructions")


def test_a_ceiling_names_its_counters(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    page.locator('[data-level=dram] svg.wide g.roof[data-key="FP32"] .hit').hover(
        force=True, position={"x": 150, "y": 7}
    )
    expect(page.locator("#tip")).to_contain_text("66.8 TFLOP/s")
    expect(page.locator("#tip")).to_contain_text("op_ffma_pred_on")


@pytest.mark.parametrize(
    "selector",
    [
        "#ladder-table tr[data-variant=fix3] td >> nth=3",
        "#ladder-table tr[data-variant=fix3] button",
        "[data-level=dram] svg.wide g.point[data-variant=fix3]",
        "[data-level=dram] svg.wide text.name[data-variant=fix3]",
        ".bar[data-variant=fix3]",
        "article[data-variant=fix3] button.choose",
    ],
)
def test_choosing_a_version_marks_it_everywhere(desk: Desk, selector: str) -> None:
    page = desk.open(pages.recorded_page())
    page.locator(selector).click()
    assert chosen(page) == {kind: {"fix3"} for kind in EVERYWHERE}
    assert page.url.endswith("#variant=fix3")
    expect(page.locator("#chosen")).to_contain_text(microseconds(pages.recorded()[0].row("fix3")))
    pressed = page.locator("[aria-pressed=true]").evaluate_all(
        "all => all.map(each => each.closest('[data-variant]').dataset.variant)"
    )
    assert set(pressed) == {"fix3"}
    expect(page.locator("#said")).to_contain_text("fix3 is marked")
    page.locator(selector).click()
    assert chosen(page) == {kind: set() for kind in EVERYWHERE}
    assert "#" not in page.url
    expect(page.locator("#chosen")).to_be_hidden()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_name_without_room_is_shown_when_its_version_is_chosen(
    desk: Desk, size: tuple[int, int]
) -> None:
    page = desk.open(pages.recorded_page(), size=size)
    expect(page.locator("#roofline .note").first).to_contain_text("its name when it is chosen")
    drawing = page.locator(f"[data-level=dram] svg.{'wide' if size == DESKTOP else 'narrow'}")
    spare = drawing.locator("text.spare")
    variants = spare.evaluate_all("all => all.map(each => each.dataset.variant)")
    assert variants
    for variant in variants:
        name = drawing.locator(f'text.spare[data-variant="{variant}"]')
        expect(name).to_be_hidden()
        page.locator(f'#ladder-table tr[data-variant="{variant}"] button').first.click()
        expect(name).to_be_visible()
        box, plot = name.bounding_box(), drawing.bounding_box()
        assert box
        assert plot
        assert box["x"] >= plot["x"]
        assert box["x"] + box["width"] <= plot["x"] + plot["width"]
    expect(drawing.locator("text.name:visible")).to_have_count(
        drawing.locator("text.name").count() - len(variants) + 1
    )


def test_choosing_by_keyboard(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    page.locator(".bar[data-variant=fix1]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert chosen(page)["row"] == {"fix2"}
    page.locator("#chosen button", has_text="›").click()
    order = [row.variant for row in pages.recorded()[0].everything]
    assert chosen(page)["point"] == {order[order.index("fix2") + 1]}
    expect(page.locator("#tip")).to_be_hidden()
    page.keyboard.press("Escape")
    assert chosen(page)["row"] == set()


def test_the_address_keeps_the_choice_and_the_place(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), hash_="#variant=fix2")
    assert chosen(page) == {kind: {"fix2"} for kind in EVERYWHERE}
    page.locator("#chosen a", has_text="step").click()
    assert page.url.endswith("#step-fix2&variant=fix2")
    expect(page.locator("#step-fix2")).to_be_in_viewport()
    page.reload()
    assert chosen(page)["step"] == {"fix2"}
    expect(page.locator("#step-fix2")).to_be_in_viewport()
    page.locator("nav a", has_text="Stalls").click()
    assert page.url.endswith("#stalls&variant=fix2")
    page.go_back()
    expect(page.locator("#step-fix2")).to_be_in_viewport()


def test_an_unknown_choice_in_the_address_is_none(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), hash_="#variant=%E0%A4%A&variant=nobody")
    assert chosen(page)["row"] == set()


def test_sorting(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    ladder = versions(page)
    assert ladder[0] == "baseline"
    head = page.locator("#ladder-table thead th", has_text="time")
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    found, _ = pages.recorded()
    times = {row.variant: row.warm.median for row in found.everything if row.warm}
    assert versions(page) == sorted(times, key=times.__getitem__)
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert versions(page) == sorted(times, key=times.__getitem__, reverse=True)
    assert page.locator("[aria-sort]").count() == 1
    parent = page.locator("#ladder-table thead button", has_text="vs parent")
    parent.click()
    gains = {row.variant: row.over_parent.ratio for row in found.rows if row.over_parent}
    rising = sorted(gains, key=gains.__getitem__)
    assert versions(page)[: len(gains)] == rising  # rows without a parent come last,
    parent.click()
    assert versions(page)[: len(gains)] == rising[::-1]  # whichever way
    page.locator("#ladder-table thead button", has_text="version").click()
    assert versions(page) == ladder


def test_planted_markup_does_not_run(desk: Desk) -> None:
    found, sources = pages.hostile()
    page = desk.open(pages.render(found, sources))
    name = found.rows[1].variant
    page.locator("details.variant").nth(1).locator("summary").first.click()
    expect(page.locator("details.variant").nth(1)).to_contain_text("<script>")
    point = page.locator("[data-level=dram] svg.wide g.point").nth(1)
    point.hover()
    expect(page.locator("#tip")).to_contain_text("</script><script>")
    point.click()
    assert chosen(page)["row"] == {name}
    assert page.url.endswith("#variant=" + quote(name, safe="!'()*"))
    page.reload()
    assert chosen(page)["row"] == {name}
    expect(page.locator(".diffs table").first).to_contain_text("<!-- <img")
    assert page.evaluate("window.planted") is None
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0


def source(variant: str) -> list[str]:
    texts = pages.recorded()[1].sides[variant].texts
    return texts[virtual_name("attention", f"{variant}.cu")].splitlines()


def test_source_view_has_reasons_by_line(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    page.locator("#variant-baseline > summary").click()
    row = page.locator('[data-source="baseline.cu"] tbody tr').nth(29)
    for text in ("59 %", "long scoreboard", "30"):
        expect(row).to_contain_text(text)
    shown = page.locator('[data-source="baseline.cu"] td.text').all_text_contents()
    assert shown == source("baseline")


def test_diff_shows_every_line_once_its_gaps_are_open(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    diff = page.locator('[data-diff=fix3] [aria-label="Diff of fix3, fix2.cu to fix3.cu"]')
    expect(diff).to_be_attached()
    while diff.locator(".gap button").count():
        diff.locator(".gap button").first.click()
    for variant, at in (("fix2", 2), ("fix3", 5)):
        cells = diff.locator("tbody tr:not(.hunk)").evaluate_all(
            "(rows, at) => rows.filter(r => !r.cells[at].classList.contains('void'))"
            ".map(r => r.cells[at].textContent)",
            at,
        )
        assert cells == source(variant)


def test_a_diff_says_at_which_shape_its_stalls_are(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    diff = page.locator('[data-diff=fix14] [aria-label="Diff of fix14, fix13.cu to fix14.cu"]')
    expect(diff).to_be_attached(timeout=30_000)  # built in idle time, one after the other
    expect(diff.locator("thead")).to_contain_text("fix13 at b4h16s2048d64")
    expect(diff.locator("thead")).to_contain_text("fix14 at b4h16s2048d64")
    expect(diff.locator("td.heat .strip").first).to_be_attached()


def test_on_a_phone_nothing_but_boxes_scrolls_sideways(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), size=PHONE)
    expect(page.locator("[data-diff=fix5] table").first).to_be_attached()
    for details in page.locator("details.variant > summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    expect(page.locator("[data-level=dram] svg.wide")).to_be_hidden()
    expect(page.locator("[data-level=dram] svg.narrow")).to_be_visible()
    assert page.locator(".diffs table:not(.unified)").count() == 0
    small = page.locator("[data-level=dram] svg.narrow text:visible").evaluate_all(
        "all => Math.min(...all.map(each => each.getBoundingClientRect().height))"
    )
    assert small >= 11
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    expect(page.locator(".diffs table.unified")).to_have_count(0)


def ink(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_light_and_dark(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), scheme="dark")
    assert ink(page) == "rgb(13, 17, 23)"
    page.locator("#theme").click()
    assert ink(page) == "rgb(255, 255, 254)"
    page.reload()
    assert ink(page) == "rgb(255, 255, 254)"
    page.locator("#theme").click()
    assert ink(page) == "rgb(13, 17, 23)"
    page.emulate_media(media="print")
    assert ink(page) == "rgb(255, 255, 254)"


def test_print_opens_everything(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    expect(page.locator("[data-diff=fix5] table").first).to_be_attached()
    page.emulate_media(media="print")
    for selector in (
        "#variant-fix5 .facts",
        "#variant-fix5 details table",
        "#roofline details table",
    ):
        box = page.locator(selector).first.bounding_box()
        assert box is not None, selector
        assert box["height"] > 20, selector
    expect(page.locator(".top")).to_be_hidden()
    code = page.locator("[data-diff=fix4] .code").first
    assert code.evaluate("each => each.scrollHeight <= each.clientHeight + 1")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator("[data-source]:not(:has(table))").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


def test_without_scripts_the_figures_are_all_there(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), scripts=False)
    count = len(pages.recorded()[0].everything)
    expect(page.locator("#ladder-table tbody tr")).to_have_count(count)
    expect(page.locator("[data-level=dram] svg.wide g.point")).to_have_count(count)
    expect(page.locator("[data-diff=fix1]")).to_contain_text("switched off")
    expect(page.locator("#theme")).to_be_hidden()


def test_first_tab_stop_skips_to_the_report(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    button = page.locator("#ladder-table thead button").first
    button.focus()
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineColor")
    assert outline == BLUE


COLOURS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const none = "rgba(0, 0, 0, 0)";
  const seen = new Map();
  for (const each of document.querySelectorAll("main *, .top *")) {
    if (!(each instanceof HTMLElement) || !each.checkVisibility()) continue;
    if (![...each.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    let at = each;
    while (getComputedStyle(at).backgroundColor === none) at = at.parentElement;
    const pair = [getComputedStyle(each).color, getComputedStyle(at).backgroundColor];
    seen.set(pair.join(), [...pair.map(rgb), each.className || each.tagName]);
  }
  return [...seen.values()];
}"""


def luminance(colour: list[int]) -> float:
    """WCAG's relative luminance of red, green and blue from 0 to 255."""
    parts = [c / 255 for c in colour]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(desk: Desk, scheme: Scheme) -> None:
    """WCAG AA, 4.5 to 1, for all visible HTML text."""
    page = desk.open(pages.recorded_page(), scheme=scheme)
    expect(page.locator("[data-diff=fix5] table").first).to_be_attached()
    pairs = page.evaluate(COLOURS)
    assert len(pairs) > 5
    for text, ground, place in pairs:
        high, low = sorted((luminance(text), luminance(ground)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (place, text, ground)


def test_a_long_ladder_opens_in_under_a_second(desk: Desk) -> None:
    page = desk.open(pages.render(*pages.long_ladder()))
    taken = []
    for _ in range(5):
        page.reload()
        taken.append(
            page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
        )
    assert min(taken) < MOST_SECONDS
    expect(page.locator("#ladder-table tbody tr")).to_have_count(pages.STEPS + 5)
    expect(page.locator("[data-diff] table").last).to_be_attached()
    assert re.search(r"\d", page.locator("#ladder-table").inner_text())
