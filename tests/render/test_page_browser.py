"""The page in a real headless Chromium, the machine's own; skipped where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

import pages
from answers import not_none
from workbench.cuda.programs import virtual_name
from workbench.render.document.hunks import costliest, costs, where

pytest.importorskip("playwright.sync_api", reason="the test extra brings playwright")
from playwright.sync_api import Browser, Locator, Page, expect

pytestmark = pytest.mark.slow
Scheme = Literal["light", "dark"]
DESKTOP, LAPTOP, TABLET, PHONE = (1440, 900), (1280, 800), (1024, 768), (390, 844)
SIZES = {"desktop": DESKTOP, "laptop": LAPTOP, "tablet": TABLET, "phone": PHONE}
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
MOST_SECONDS = 1.0
MOST_PRINTED = 25
BLUE = "rgb(0, 104, 176)"
OPENED = "fix4"  # the largest gain


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
        context.set_default_timeout(20_000)
        context.set_default_navigation_timeout(60_000)
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


def source(variant: str) -> list[str]:
    texts = pages.recorded()[1].sides[variant].texts
    return texts[virtual_name("attention", f"{variant}.cu")].splitlines()


def variants_of(page: Page) -> list[str]:
    return page.locator("table.ladder").first.locator("tbody th").all_inner_texts()


def open_steps(page: Page) -> list[str]:
    found = page.locator("article.step:visible").evaluate_all(
        "all => all.map(each => each.dataset.variant)"
    )
    return [str(name) for name in found]


def in_its_box(row: Locator) -> bool:
    """Whether the box that scrolls shows it."""
    return bool(
        row.evaluate(
            "row => { const box = row.closest('.code').getBoundingClientRect();"
            " const { top, bottom } = row.getBoundingClientRect();"
            " return top >= box.top && bottom <= box.bottom + 1; }"
        )
    )


def overflow(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def steps() -> list[str]:
    return [row.variant for row in pages.recorded()[0].rows]


@pytest.mark.parametrize("size", ["desktop", "tablet", "phone"])
def test_it_opens_whole_silent_and_legible(desk: Desk, size: str) -> None:
    """Nothing but boxes scrolls sideways, whatever is open; text has WCAG AA, 4.5 to 1."""
    page = desk.open(pages.recorded_page(), size=SIZES[size])
    expect(page.locator("h1")).to_contain_text("Flash attention forward on Hopper")
    assert overflow(page) <= 0
    page.evaluate(
        "for (const each of document.querySelectorAll('#step-fix4 details, #ladder details,"
        " #code-fix4')) each.open = true"
    )
    page.evaluate("location.hash = 'fix4'")
    expect(page.locator("#step-fix4 .code").first).to_be_visible()
    expect(page.locator("#code-fix4 .code").first).to_be_attached()
    assert overflow(page) <= 0
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        pairs = page.evaluate(COLOURS)
        assert len(pairs) > 5
        for text, ground, place in pairs:
            both = ("#" + bytes(colour).hex() for colour in (text, ground))
            assert pages.contrast(*both) >= 4.5, (scheme, place, text, ground)


def test_the_ladder_fits_its_column_with_the_key_change(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    table = page.locator("table.ladder").first
    change = table.locator("tbody tr").nth(1).locator(".c-key_change")
    for name, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        box = table.locator("xpath=..")
        assert box.evaluate("each => each.scrollWidth - each.clientWidth") <= 0, name
        room = change.bounding_box()
        assert room
        assert room["width"] >= 150, name
        assert room["x"] + room["width"] <= width, name
        expect(table.locator("thead")).to_be_visible(visible=name != "phone")
    page.locator("#ladder > details summary").first.click()
    expect(page.locator("#ladder .c-achieved_occupancy_pct:visible").last).to_be_attached()


def test_on_a_phone_a_version_is_a_card(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), size=PHONE)
    card = page.locator("table.ladder").first.locator("tbody tr").nth(1)
    box = card.bounding_box()
    assert box
    assert box["height"] > 90
    assert box["width"] <= PHONE[0]
    time = card.locator(".c-microseconds")
    label = time.evaluate("each => getComputedStyle(each, '::before').content")
    assert "time" in label
    assert "µs" in label
    small = page.locator("svg.chart text:visible").evaluate_all(
        "all => Math.min(...all.map(each =>"
        " each.getAttribute('font-size') * each.ownerSVGElement.getScreenCTM().a))"
    )
    assert small >= 11
    assert overflow(page) <= 0


def test_one_step_is_open_at_a_time(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    assert open_steps(page) == [OPENED]
    hottest = page.locator(f"#step-{OPENED} .code tr.hottest").first
    expect(hottest).to_be_attached()
    assert in_its_box(hottest)
    page.locator(".step-list a").first.click()
    assert open_steps(page) == steps()[:1]
    back, ahead = page.locator("[data-go='-1']"), page.locator("[data-go='1']")
    expect(back).to_be_disabled()
    ahead.click()
    assert open_steps(page) == [steps()[1]]
    assert page.url.endswith(f"#step-{steps()[1]}")
    page.keyboard.press("n")
    assert open_steps(page) == [steps()[2]]
    page.keyboard.press("p")
    back.click()
    assert open_steps(page) == steps()[:1]
    page.go_back()
    assert open_steps(page) == [steps()[1]]
    link = page.locator(".step-list a").last
    link.click()
    assert open_steps(page) == [steps()[-1]]
    expect(link).to_have_attribute("aria-current", "true")
    expect(page.locator(".step-list [aria-current]")).to_have_count(1)
    expect(link).to_be_in_viewport()
    expect(page.locator(f"#step-{steps()[-1]} h3")).to_be_in_viewport()
    expect(ahead).to_be_disabled()
    page.keyboard.press("n")
    assert open_steps(page) == [steps()[-1]]


def test_an_address_opens_its_step(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), hash_="#fix2%5Bwarps=12%5D")
    expect(page.locator('article[data-variant="fix2[warps=12]"] h3')).to_be_in_viewport()
    for hash_, step in (
        ("#fix5", "fix5"),
        ("#nobody", "fix5"),
        ("#%E0%A4%A", "fix5"),
        ("#fix2[warps=12]", "fix2[warps=12]"),
        ("#step-fix3", "fix3"),
    ):
        page.evaluate("hash => { location.hash = hash; }", hash_)
        page.wait_for_timeout(50)
        assert open_steps(page) == [step], hash_
        expect(page.locator(f'article[data-variant="{step}"] h3')).to_be_in_viewport()
    page.reload()
    assert open_steps(page) == ["fix3"]


def test_a_version_in_the_ladder_leads_to_its_step(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), size=TABLET)
    page.locator("table.ladder a", has_text=re.compile("^fix4$")).first.click()
    assert open_steps(page) == ["fix4"]
    expect(page.locator("#step-fix4")).to_be_focused()
    expect(page.locator("#step-fix4 h3")).to_be_in_viewport()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_search_finds_steps_files_and_figures(desk: Desk, size: tuple[int, int]) -> None:
    page = desk.open(pages.recorded_page(), size=size)
    page.keyboard.press("/")
    field, hits = page.locator("#search input"), page.locator("#hits")
    expect(field).to_be_focused()
    expect(hits).to_be_hidden()
    field.fill("cp.async")
    expect(hits.locator("[aria-selected=true]")).to_contain_text("fix5")
    field.press("Enter")
    assert open_steps(page) == ["fix5"]
    expect(hits).to_be_hidden()
    page.keyboard.press("/")
    field.fill("fix3.cu")
    expect(hits.locator("li").first).to_contain_text("file")
    field.press("Enter")
    expect(page.locator("#code-fix3")).to_have_attribute("open", "")
    expect(page.locator("#code-fix3 [data-source='fix3.cu'] .code")).to_be_attached()
    page.keyboard.press("/")
    field.fill("occupancy")
    first = hits.locator("[role=option]").first
    selected = field.get_attribute("aria-activedescendant")
    field.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") != selected
    field.press("ArrowUp")
    assert field.get_attribute("aria-activedescendant") == selected
    field.fill("achieved occupancy")
    expect(first).to_contain_text("figure")
    first.click()
    expect(page.locator("th:focus")).to_be_in_viewport()
    expect(page.locator("th:focus")).to_contain_text(re.compile("achieved occupancy", re.I))
    page.keyboard.press("/")
    field.fill("bank conflicts")
    figure = hits.locator("[role=option]", has_text=re.compile("^figure"))
    expect(figure).to_have_count(1)
    expect(figure).to_contain_text("Shared memory bank conflicts: 0 to 3,710")
    expect(figure).to_contain_text("fix2[warps=12] 3,710 · ")
    values = figure.locator(".values")
    assert values.evaluate("each => each.scrollWidth - each.clientWidth") <= 0
    room = values.evaluate("each => each.clientWidth / each.parentElement.clientWidth")
    assert room > 0.6
    field.press("Escape")
    page.keyboard.press("/")
    field.fill("const size_t mine = head +")
    expect(hits.locator("[aria-selected=true]")).to_contain_text("line")
    field.press("Enter")
    expect(page.locator("tr:focus")).to_contain_text("const size_t mine = head +")
    page.keyboard.press("/")
    step = not_none(pages.recorded()[0].row("fix4").step)
    field.fill(" ".join(step.lesson.split()[:6]))
    expect(hits).to_contain_text("lesson")
    field.fill("nosuchthing")
    expect(hits).to_contain_text("nothing found")
    field.press("Escape")
    expect(hits).to_be_hidden()
    assert field.input_value() == ""
    assert overflow(page) <= 0


def test_a_chart_is_read_and_not_clicked(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    mark = page.locator("svg.wide[data-chart=times] circle", has_text="fix1:")
    expect(mark.locator("title")).to_have_text(re.compile(r"^fix1: [\d.]+ µs, kept$"))
    mark.click()
    page.locator("table.ladder tr[data-key=fix1] td").first.click()
    assert open_steps(page) == [OPENED]
    assert page.locator("svg [tabindex], svg [role=button]").count() == 0


def test_a_diff_opens_at_its_costliest_hunk(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    diffs = pages.recorded()[1].diffs
    for variant in ("fix5", "fix6", "fix9"):
        hunk = costliest(diffs[variant])[0]
        page.evaluate(f"location.hash = '{variant}'")
        code = page.locator(f"#step-{variant} .code").first
        heading = code.locator(f'[data-hunk="{hunk.number}"]')
        for text in (where(hunk), *costs(hunk)):
            expect(heading).to_contain_text(text)
        top = code.evaluate(
            "(code, number) => code.querySelector(`[data-hunk='${number}']`)"
            ".getBoundingClientRect().top - code.getBoundingClientRect().top"
            " - code.querySelector('thead').offsetHeight",
            hunk.number,
        )
        room = code.evaluate("code => code.scrollHeight - code.clientHeight - code.scrollTop")
        at_its_line = in_its_box(code.locator("tr.hottest").first)
        assert abs(top) <= 2 or (room <= 1 and top > 0) or at_its_line, variant


def test_the_list_of_hunks_leads_to_their_lines(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), hash_="#fix5")
    step = page.locator("#step-fix5")
    second = costliest(pages.recorded()[1].diffs["fix5"])[1]
    step.locator(".hunk-list button").nth(1).click()
    heading = step.locator(f'[data-hunk="{second.number}"]')
    expect(heading).to_be_focused()
    expect(heading).to_be_in_viewport()


def test_diff_shows_every_line_once_its_gaps_are_open(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), hash_="#fix3")
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
    cell = page.locator('[data-diff=fix3] td.heat[title*="of fix2.cu"]').first
    expect(cell).to_have_attribute("title", re.compile(r"µs of stall time under ncu\n[\d.<]+ %"))
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    expect(page.locator("[data-diff=fix3] table:not(.unified)")).to_have_count(0)


def test_a_diff_says_at_which_shape_its_stalls_are(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), hash_="#fix14")
    diff = page.locator('[data-diff=fix14] [aria-label="Diff of fix14, fix13.cu to fix14.cu"]')
    expect(diff.locator("thead")).to_contain_text("fix13 at S=2048")
    expect(diff.locator("thead")).to_contain_text("fix14 at S=2048")
    expect(diff.locator("td.heat .strip").first).to_be_attached()


def test_source_view_has_reasons_by_line(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), hash_="#code-baseline")
    holder = page.locator('#code-baseline [data-source="baseline.cu"]')
    row = holder.locator("tbody tr").nth(29)
    for text in ("48 % of all samples", "long scoreboard41 %", "30"):
        expect(row).to_contain_text(text)
    assert holder.locator("td.text").all_text_contents() == source("baseline")
    assert in_its_box(holder.locator("tr.hottest"))
    notes = page.locator("#code-sdpa .note")
    expect(notes).to_contain_text("Costs by line are not collected")


def test_sorting(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    ladder = variants_of(page)
    assert ladder[0] == "baseline"
    table = page.locator("table.ladder").first
    head = table.locator("thead .c-microseconds")
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    found = pages.recorded()[0]
    times = {row.variant: row.time.value for row in found.everything if row.time}
    rising = sorted((name for name in ladder if name in times), key=times.__getitem__)
    untimed = [name for name in ladder if name not in times]  # come last, whichever way
    assert variants_of(page) == [*rising, *untimed]
    head.locator("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    assert variants_of(page) == [*rising[::-1], *untimed]
    assert table.locator("[aria-sort]").count() == 1
    parent = table.locator("thead .c-speedup_over_parent button")
    parent.click()
    without = table.locator('tbody td.c-speedup_over_parent[data-sort=""]').count()
    known = len(ladder) - without
    first = variants_of(page)[:known]  # rows without a parent come last,
    parent.click()
    assert variants_of(page)[:known] == first[::-1]  # whichever way
    table.locator("thead button", has_text="variant").click()
    assert variants_of(page) == ladder


def test_planted_markup_does_not_run(desk: Desk) -> None:
    found, sources = pages.hostile()
    page = desk.open(pages.render(found, sources))
    name = found.rows[1].variant
    details = page.locator("#code > details").nth(1)
    details.locator("summary").first.click()
    expect(details).to_contain_text("<script>")
    page.locator("table.ladder a", has_text="fix1").first.click()
    assert open_steps(page) == [name]
    expect(page.locator(".diffs table").first).to_contain_text("<!-- <img")
    page.keyboard.press("/")
    page.locator("#search input").fill("planted")
    expect(page.locator("#hits li").first).to_be_visible()
    page.reload()
    assert open_steps(page) == [name]
    assert page.evaluate("window.planted") is None
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0


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


def expect_ground(page: Page, colour: str) -> None:
    """It is asked for again for a moment: a theme comes with the next frame."""
    expect(page.locator("body")).to_have_css("background-color", colour)


def test_light_and_dark(desk: Desk) -> None:
    dark, light = "rgb(13, 17, 23)", "rgb(255, 255, 255)"
    page = desk.open(pages.recorded_page(), scheme="dark")
    expect_ground(page, dark)
    page.locator("#theme").click()
    expect_ground(page, light)
    page.reload()
    expect_ground(page, light)
    page.locator("#theme").click()
    expect_ground(page, dark)
    page.emulate_media(media="print")
    expect_ground(page, light)


def test_printing_gives_the_reading_path(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), scheme="dark", hash_="#fix5")
    pdf = page.pdf(format="A4", prefer_css_page_size=True)
    counts = [int(n) for n in re.findall(rb"/Count (\d+)", pdf)]
    assert 5 < max(counts) < MOST_PRINTED
    page.emulate_media(media="print")
    assert open_steps(page) == steps()
    for selector in ("#failures", "#ladder table", "svg.wide[data-chart=roofline]", "#method"):
        expect(page.locator(selector).first).to_be_visible()
    for selector in ("details", ".diffs", "#code", ".top", ".step-list"):
        expect(page.locator(f"{selector}:visible")).to_have_count(0)
    expect_ground(page, "rgb(255, 255, 255)")


def test_without_scripts_everything_is_there_but_diffs(desk: Desk) -> None:
    page = desk.open(pages.recorded_page(), scripts=False)
    assert open_steps(page) == steps()
    expect(page.locator("svg.wide[data-chart=roofline]")).to_be_visible()
    expect(page.locator("[data-diff=fix1]")).to_contain_text("switched off")
    for hidden in ("#theme", "#search", ".step-buttons"):
        expect(page.locator(hidden)).to_be_hidden()


def test_first_tab_stop_skips_to_the_report(desk: Desk) -> None:
    page = desk.open(pages.recorded_page())
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.locator("table.ladder thead button").first.focus()
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineColor")
    assert outline == BLUE


def test_a_long_ladder_opens_at_once(desk: Desk) -> None:
    page = desk.open(pages.render(*pages.long_ladder()))
    taken = []
    for _ in range(5):
        page.reload()
        taken.append(
            page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
        )
    assert min(taken) < MOST_SECONDS
    assert len(open_steps(page)) == 1
