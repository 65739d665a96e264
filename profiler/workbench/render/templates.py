"""Files written from templates: ``OPTIMIZATION_REPORT.md``, and those of a package. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import bounds
from workbench.derive.source_diff import SourceDiff
from workbench.derive.speedup import LEVEL
from workbench.evidence.records import ShippedTime
from workbench.judge.ladder import Ablation
from workbench.render import markdown
from workbench.render.document.blocks import Section
from workbench.render.document.ladder_report import NO_DIFFS, summary
from workbench.render.numbers import harmless, number
from workbench.shipped.facts import NAMED, NOTHING, ONE, TENSOR, Facts
from workbench.study.files import require_readable, stands
from workbench.study.users_code import users_code
from workbench.study.workspace import packaged_content
from workbench.words import ABSENT

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


FOLDER = "package"
RESERVED = ("counts", "layers", "provenance", "strict")  # what every package offers
WIDTH = 88  # of a line of a docstring


@dataclass(frozen=True, kw_only=True)
class PackageText:
    """The values that templates print beside the facts. ``dependencies`` are as pip writes them,
    ``archs`` those that there are cubins for, by ``compiler``; ``other_code`` says which of them
    are not the machine code that was measured, "" for none; ``licence`` is an SPDX expression, ""
    where none is known, and ``has_licence`` whether its text is there.
    """

    facts: Facts
    distribution: str
    title: str
    key_change: str
    reference: str
    compared: str
    gpu: str
    times: Sequence[ShippedTime]
    dependencies: Sequence[str]
    archs: Sequence[str]
    compiler: str
    other_code: str
    licence: str
    has_licence: bool
    has_backward: bool
    workbench: str
    date: str
    version: str


def texts(package: PackageText, environment: jinja2.Environment) -> Mapping[str, str]:
    """Return the files by their paths in the package's folder."""
    facts = package.facts
    top = f"torch-ext/{facts.package}"
    values = {
        **vars(package),
        "title": _plain(package.title),
        "key_change": _plain(package.key_change),
        "reference": _plain(package.reference),
        "doc": _wrapped(_plain(package.key_change)),
        "names": [name for name, _ in facts.arguments],
        "exported": sorted([*RESERVED, facts.function]),
        "layer": "".join(part.capitalize() for part in facts.function.split("_")),
        "returned": returned(facts),
        "supported": supported(facts),
        "wrapped": [line for each in supported(facts) for line in _wrapped(each)],
        "rows": [_row(each) for each in package.times],
        "capabilities": [_capability(arch) for arch in package.archs],
        "virtual_root": "/workbench/kernels",
    }
    named = {
        f"{top}/__init__.py": "init.py.j2",
        f"{top}/_ops.py": "ops.py.j2",
        f"{top}/layers.py": "layers.py.j2",
        f"{top}/_runtime/__init__.py": "runtime_init.py.j2",
        f"{top}/_runtime/words.py": "runtime_words.py.j2",
        f"tests/test_{facts.package}.py": "test_package.py.j2",
        "pyproject.toml": "pyproject.toml.j2",
        "build.toml": "build.toml.j2",
        "README.md": "README.md.j2",
    }
    return {
        path: rendered(environment, f"{FOLDER}/{name}", **values) for path, name in named.items()
    }


def returned(facts: Facts) -> str:
    """The annotation of what the function returns."""
    kinds = {ONE: TENSOR, NOTHING: "None", NAMED: f"dict[str, {TENSOR}]"}
    several = ", ".join([TENSOR] * len(facts.outputs))
    return kinds.get(facts.returns, f"tuple[{several}]")


def supported(facts: Facts) -> list[str]:
    """The domain, a sentence a relation."""
    names, domain = facts.tensors, facts.domain
    parts = ["It was checked for:"] if len(domain.cases) > 1 else []
    for case in domain.cases:
        sizes = [
            f"{name} [{', '.join(_extents(case.fixed, which, rank))}]"
            for which, (name, rank) in enumerate(zip(names, case.ranks, strict=True))
        ]
        parts.append(f"Tensors {', '.join(sizes)} on one GPU.")
        types = [" and ".join(dict.fromkeys(each)) for each in case.dtypes]
        parts.append(f"Types: {'; '.join(types)}.")
        for group in case.equal:
            places = [f"{names[which]}.shape[{at}]" for which, at in group]
            parts.append(f"The same: {', '.join(places)}.")
    for name, values in domain.values.items():
        if values:
            parts.append(f"{name} is {' or '.join(map(repr, values))}.")
    parts.append("What the variant itself refuses besides is said when it is called.")
    loose = [name for name in names if name not in domain.strided]
    if loose:
        parts.append(f"Copied where they do not lie in order: {', '.join(loose)}.")
    return parts


def _extents(fixed: Sequence[tuple[int, int, int]], which: int, rank: int) -> list[str]:
    extents = {at: extent for tensor, at, extent in fixed if tensor == which}
    return [str(extents.get(at, "any")) for at in range(rank)]


def _plain(text: str) -> str:
    """Put text in a line that ends neither a docstring nor a string of TOML."""
    return " ".join(text.replace('"', "'").replace("\\", "/").split())


def _wrapped(text: str) -> list[str]:
    from textwrap import wrap

    return wrap(text, WIDTH, break_long_words=False) if len(text) > WIDTH else [text]


def _row(time: ShippedTime) -> dict[str, str]:
    ratio = ABSENT
    if time.ratio is not None and time.low is not None and time.high is not None:
        level = "" if time.level == LEVEL else f" at {time.level} %"
        ratio = f"{time.ratio:.3g}x [{time.low:.3g}, {time.high:.3g}]{level}"
    elif time.ratio is not None:
        ratio = f"{time.ratio:.3g}x"
    error = ABSENT if time.times_reference is None else f"{time.times_reference:.3g}x"
    return {"shape": time.shape, "time": number(time.microseconds), "ratio": ratio, "error": error}


def _capability(arch: str) -> str:
    """``9.0a`` of ``sm_90a``."""
    digits = arch.removeprefix("sm_")
    suffix = digits[-1] if digits[-1] in "af" else ""
    digits = digits.removesuffix(suffix) if suffix else digits
    return f"{digits[:-1]}.{digits[-1]}{suffix}"
