"""The templates of the page and of packages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from workbench.render.text import harmless
from workbench.study.files import packaged_content

if TYPE_CHECKING:
    import jinja2


@cache
def templates(*, html: bool = False) -> jinja2.Environment:
    """For ``html`` everything is escaped."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(packaged_content() / "templates"),
        autoescape=html,
        finalize=(lambda value: harmless(value) if type(value) is str else value) if html else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
