"""A kept variant as an installable package, with its evidence inside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

import workbench
from workbench.app import packaging
from workbench.app.report import REPORT
from workbench.app.shipped_subject import (
    Subject,
    facts_of,
    licence_of,
    other_code,
    provenance_of,
    sources,
    subject_of,
)
from workbench.app.target import Target
from workbench.children import temporary_folder
from workbench.evidence import store
from workbench.evidence.records import Shipped
from workbench.judge.ladder import judge
from workbench.render.templates import PackageText, render_report, template_environment, texts
from workbench.run.side_jobs import packable
from workbench.shipped import facts as facts_files
from workbench.shipped.facts import CUBINS, Facts
from workbench.study.files import alone, write_bytes

VERSION = "0.1.0"


def package_text(
    subject: Subject, facts: Facts, shipped: Shipped, distribution: str, files: Mapping[str, bytes]
) -> PackageText:
    study = subject.study
    licence, text = licence_of(subject.target.workspace)
    python = {n: data.decode() for n, data in files.items() if n.endswith(".py")}
    compared = next((time.reference for time in subject.times if time.reference), "the reference")
    reference = subject.reference
    return PackageText(
        facts=facts,
        distribution=distribution,
        title=study.ladder.title or study.name,
        key_change=shipped.key_change,
        reference=(reference.title or reference.name) if reference else "the study's own reference",
        compared=compared,
        gpu=shipped.environment.gpu or subject.target.folder.gpu,
        times=subject.times,
        dependencies=packaging.dependencies(python, kernels=bool(shipped.cubins)),
        archs=subject.archs if shipped.cubins else (),
        compiler=shipped.compiler,
        other_code=other_code(shipped),
        licence=licence,
        has_licence=text is not None,
        has_backward=hasattr(study.module, "backward"),
        workbench=workbench.__version__,
        date=shipped.date[:10],
        version=VERSION,
    )


def written(subject: Subject, distribution: str, package: str, folder: Path) -> Shipped:
    top = folder / "torch-ext" / package
    own = sources(subject)
    cubins = top / CUBINS
    top.mkdir(parents=True)
    found = packable(
        subject.study, subject.variant, subject.reference, subject.archs, subject.checked, cubins
    )
    facts = facts_of(subject, package, found)
    shipped = provenance_of(subject, facts, found, cubins)
    shown = package_text(subject, facts, shipped, distribution, own)
    workspace = subject.target.workspace
    written_files = {
        **texts(shown, template_environment(workspace.template_folders)),
        **{f"torch-ext/{package}/{name}": text for name, text in packaging.runtime().items()},
        f"torch-ext/{package}/kernels/__init__.py": "",
        f"torch-ext/{package}/kernels/{facts.study}/__init__.py": "",
        f"torch-ext/{package}/metadata.json": metadata(shown, shipped.fingerprint),
        f"torch-ext/{package}/py.typed": "",
        **{f"report/{name}": text for name, text in report_of(subject).items()},
    }
    data = {name: text.encode(errors="replace") for name, text in written_files.items()}
    data |= {f"torch-ext/{package}/kernels/{facts.study}/{n}": each for n, each in own.items()}
    _, licence = licence_of(workspace)
    if licence is not None:
        data["LICENSE"] = licence
    for name, content in data.items():
        write_bytes(folder / name, content)
    facts_files.write(top / facts_files.FILE, facts)
    shipped = structs.replace(shipped, files=packaging.digests(folder))
    store.write(top / packaging.PROVENANCE, shipped)
    return shipped


def metadata(found: PackageText, fingerprint: str) -> str:
    """``metadata.json`` as `kernels` reads it; by its id the package is known in a process."""
    content = {
        "id": f"_{found.facts.package}_cuda_{fingerprint[:8]}",
        "name": found.distribution,
        "version": 1,
        "python-depends": [],
        "backend": {"type": "cuda"},
        "license": found.licence or "other",
    }
    return json.dumps(content, indent=1) + "\n"


def report_of(subject: Subject) -> Mapping[str, str]:
    """The report of the steps that lead to the variant, and its charts."""
    from workbench.render.chart.charts import chart_files

    target = subject.target
    steps = target.study.ladder.chain([subject.variant.name])
    evidence = target.load_ladder(steps, sources=True)
    judged = judge(evidence, target.workspace.config)
    environment = template_environment(target.workspace.template_folders)
    charts = chart_files(judged)
    return {**charts, REPORT: render_report(judged, environment)}


@dataclass(frozen=True)
class Shipment:
    """A package that was written to ``folder``."""

    folder: Path
    subject: Subject = field(repr=False)
    shipped: Shipped


def ship(
    target: Target, variant: str, name: str, to: Path | None, archs: Sequence[str]
) -> Shipment:
    """Write a kept variant as the package ``name``, to ``to`` or ./NAME. Raises UsageError for a
    name that cannot be one, or a folder with something in it, and as ``subject_of``.
    """
    distribution, package = packaging.require_name(name)
    folder = (to or Path(name)).absolute()
    packaging.require_room(folder)
    subject = subject_of(target, variant, archs)
    if archs and not subject.archs:
        target.note(f"{subject.variant.name} has no kernels of cuda.kernel: --arch changes nothing")
    if subject.archs:
        target.note(f"compiling {subject.variant.name} for {', '.join(subject.archs)}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(".workbench-ship-", folder.parent) as scratch:
        made = scratch / folder.name
        made.mkdir()
        shipped = written(subject, distribution, package, made)
        with alone(folder):
            packaging.require_room(folder)
            made.rename(folder.resolve())  # whole or not at all
    return Shipment(folder, subject, shipped)
