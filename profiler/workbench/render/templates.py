"""Files written from templates: ``OPTIMIZATION_REPORT.md``, and those of a package. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import bounds
from workbench.derive.source_diff import SourceDiff
from workbench.judge.ladder import Ablation
from workbench.render import markdown
from workbench.render.document.blocks import Section
from workbench.render.document.ladder_report import NO_DIFFS, summary
from workbench.render.numbers import harmless
from workbench.study.files import require_readable, stands
from workbench.study.users_code import users_code
from workbench.study.workspace import packaged_content

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
        finalize=(lambda value: harmless(value) if type(value) is str else value) if html else None,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def packaged_environment() -> jinja2.Environment:
    """The templates that are part of the workbench, for HTML."""
    return template_environment([packaged_content() / "templates"], html=True)


def rendered(environment: jinja2.Environment, template: str, **values: Any) -> str:
    """The text of a template. Raises UsageError with the line of one that is the user's and wrong,
    or takes too long.
    """
    folders = map(Path, environment.loader.searchpath)  # type: ignore[union-attr]
    path = next(p for folder in folders if stands(p := folder / template))
    require_readable(path, bounds.SETTINGS)
    with users_code(path, "cannot be rendered"):
        return environment.get_template(template).render(values)


def render_report(
    ablation: Ablation,
    environment: jinja2.Environment,
    diffs: Mapping[str, SourceDiff] = NO_DIFFS,
) -> str:
    """The summary as Markdown; ``diffs`` has a step's diff against its parent.

    The template gets ``title``, ``sections`` (key to Markdown, in order, each with its heading) and
    ``facts`` (study, shape, gpu, date, source).
    """
    document = summary(ablation, diffs)
    text = rendered(
        environment,
        TEMPLATE,
        title=markdown.spans(document.title),
        sections={
            each.key: markdown.section(each)
            for each in document.blocks
            if isinstance(each, Section)
        },
        facts=document.facts,
    )
    return text.rstrip() + "\n"
