"""A hostile page in a real browser that may run scripts: nothing is said, asked or fetched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pages
from hostile_texts import WORST

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog

pytestmark = pytest.mark.slow
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


@pytest.mark.parametrize("policy", [True, False])
@pytest.mark.parametrize("text", [pages.NASTY, WORST])
def test_nothing_happens(browser: Browser, tmp_path: Path, text: str, policy: bool) -> None:
    page_text = pages.render(*pages.hostile(text))
    assert POLICY.search(page_text)
    if not policy:
        page_text = POLICY.sub("", page_text)
    path = tmp_path / "report.html"
    path.write_text(page_text, encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    happened: list[str] = []

    def refuse(dialog: Dialog) -> None:
        happened.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    page.on("request", lambda request: happened.append(request.url))
    page.on("pageerror", lambda error: happened.append(str(error)))
    context.on("page", lambda other: happened.append(other.url))
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    page.wait_for_timeout(300)
    assert page.evaluate("window.planted") is None
    assert page.locator("img").count() == 0
    assert [each for each in happened if each not in (path.as_uri(), "data:,")] == []
    context.close()
