"""``OPTIMIZATION_REPORT.md``: a document's sections in the frame that a template gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.judge.rows import Ablation
from workbench.render import markdown
from workbench.render.document.blocks import Callout, Section
from workbench.render.document.ladder_report import summary
from workbench.render.numbers import harmless

if TYPE_CHECKING:
    import jinja2

TEMPLATE = "OPTIMIZATION_REPORT.md.j2"


def template_environment(folders: list[Path], *, html: bool = False) -> jinja2.Environment:
    """Templates from ``folders``, the first that has one winning file by file. For ``html``
    everything is escaped; Markdown is given as such.
    """
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=html,
        finalize=_harmless if html else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _harmless(value: object) -> object:
    return harmless(value) if type(value) is str else value


def render_report(ablation: Ablation, environment: jinja2.Environment) -> str:
    """The summary as Markdown.

    The template gets ``title``, ``warnings`` ("" without any), ``contents`` (links), ``sections``
    (key to Markdown, in order, each with its heading) and ``facts`` (study, shape, gpu, date,
    source).
    """
    document = summary(ablation)
    warnings = [each for each in document.blocks if isinstance(each, Callout)]
    text = environment.get_template(TEMPLATE).render(
        title=markdown.spans(document.title),
        warnings=markdown.blocks(warnings),
        contents=markdown.contents(document),
        sections={
            each.key: markdown.section(each)
            for each in document.blocks
            if isinstance(each, Section)
        },
        facts=document.facts,
    )
    return text.rstrip() + "\n"
