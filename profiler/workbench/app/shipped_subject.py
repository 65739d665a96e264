"""What is shipped: a kept variant, what answers for it, and all that is reported of the two."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from msgspec import structs

import workbench
from workbench.app import packaging
from workbench.app.judge import judged
from workbench.app.target import Target, require_arch
from workbench.derive.speedup import LEVEL, ratio_of, session_times, time_of
from workbench.errors import GateFailed, UsageError, WorkbenchError
from workbench.evidence.records import Build, Provenance, Shipped, ShippedCubin, ShippedTime, Timing
from workbench.judge.findings import sentence
from workbench.judge.ladder import Row
from workbench.load import ShapeEvidence, VariantEvidence, fullest_timing, load
from workbench.render.document.phrases import NOT_JUDGED
from workbench.render.templates import RESERVED
from workbench.run.protocol import Packable
from workbench.run.recording import now
from workbench.run.repository import repository_of
from workbench.shipped.facts import Facts
from workbench.study.files import json_data, read_toml, readable_text
from workbench.study.front_ends import is_compiling, kept_between_calls
from workbench.study.model import Study, Variant, base_name
from workbench.study.sources import Fingerprints, named_from, source_files
from workbench.study.workspace import Workspace, including
from workbench.words import HEADLINE, CheckResult, GateState, Status, Verdict

MEASURE = "`workbench ablate` measures it where there is a GPU with ncu"


def require_kept(row: Row, evidence: VariantEvidence) -> None:
    """Raises GateFailed for a variant that is no kept step by evidence of the present sources,
    at every shape that it was checked or timed at.
    """
    name, why = row.variant, sentence(row.problem)
    stale = [kind for kind, state in row.evidence_state.items() if state == Status.STALE]
    missing = [kind for kind, state in row.evidence_state.items() if state == Status.MISSING]
    checks = evidence.check_states.items()
    stale += [f"check at {shape}" for shape, state in checks if state == Status.STALE]
    if stale or row.status == Status.STALE:
        raise GateFailed(
            f"the evidence of '{name}' is stale: {', '.join(stale) or why} of other "
            "sources than there are now",
            hint=MEASURE,
        )
    if row.verdict != Verdict.KEPT:
        failed = [gate for gate in row.gates if gate.state == GateState.FAILED]
        gates = failed or [gate for gate in row.gates if gate.state == GateState.OPEN]
        why = "; ".join(f"{gate.name}: {sentence(gate.why)}" for gate in gates) or why
        why = why or (f"{', '.join(missing)} missing" if missing else "")
        raise GateFailed(
            f"'{name}' is not kept ({row.verdict.label if row.verdict else NOT_JUDGED})"
            + (f": {why}" if why else ""),
            hint="only steps that are kept are shipped" if failed else MEASURE,
        )


def shapes_of(evidence: VariantEvidence, result: CheckResult) -> tuple[str, ...]:
    """Shapes at which the current check came to this, in the order of the study."""
    return tuple(s for s, check in evidence.checks.items() if check.status == result)


def times_of(
    every: Mapping[str, ShapeEvidence], variant: str, reference: str
) -> Iterator[ShippedTime]:
    """At every shape where it was timed, beside the reference where that was timed too."""
    for shape, evidence in every.items():
        timing = fullest_timing(evidence, filter(None, [variant, reference]))
        if timing is None or variant not in timing.chained:
            continue
        beside = reference if reference in timing.chained else ""
        if found := timed(timing.timing, variant, beside, file=f"{shape}/timings/{timing.file}"):
            check = evidence.variants[variant].checks.get(shape)
            yield structs.replace(found, times_reference=check.times_reference if check else None)


def timed(timing: Timing, variant: str, reference: str, *, file: str = "") -> ShippedTime | None:
    """None where a call adds nothing."""
    every = session_times(timing.together)
    mine = every.get((variant, HEADLINE, False), {})
    its = every.get((reference, HEADLINE, False), {})
    time = time_of(mine, HEADLINE)
    if time is None:
        return None
    ratio = ratio_of(its, mine, timing.first_planned) if its else None
    return ShippedTime(
        shape=timing.shape,
        microseconds=time.value,
        sessions=time.sessions,
        file=file,
        reference=reference if ratio else "",
        ratio=ratio.ratio if ratio else None,
        low=ratio.low if ratio else None,
        high=ratio.high if ratio else None,
        level=ratio.level if ratio else LEVEL,
    )


DISTRIBUTION = "kernel-workbench"
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "COPYING")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is shipped: a variant that is kept, by evidence of the present sources."""

    target: Target
    evidence: Mapping[str, ShapeEvidence]  # by shape
    row: Row
    variant: Variant
    reference: Variant | None
    checked: tuple[str, ...]
    refused: tuple[str, ...]
    times: tuple[ShippedTime, ...]
    archs: tuple[str, ...]

    @property
    def study(self) -> Study:
        return self.target.study

    @property
    def build(self) -> Build | None:
        return self.evidence[self.target.shape].variants[self.variant.name].build


def subject_of(target: Target, name: str, archs: Sequence[str]) -> Subject:
    """Raises GateFailed for what is not kept, or stale, and UsageError for unknown names."""
    target.study, (name,) = including(target.study, [name])
    row = judged(target)[0].row(name)
    evidence = load(target.study, target.folder, {shape: [name] for shape in target.study.shapes})
    own = evidence[target.shape].variants[name]
    require_kept(row, own)
    if not (checked := shapes_of(own, CheckResult.CORRECT)):
        raise GateFailed(f"'{name}' is recorded as correct at no shape", hint=MEASURE)
    build = own.build
    kernels = build is not None and bool(build.kernels)
    for arch in archs:
        require_arch(arch)
    wanted = tuple(archs) or ((build.arch,) if build and build.arch else ())
    reference = reference_of(target.study)
    beside = target.study.ladder.primary_reference
    return Subject(
        target=target,
        evidence=evidence,
        row=row,
        variant=target.study.variants[name],
        reference=reference,
        checked=checked,
        refused=shapes_of(own, CheckResult.UNSUPPORTED),
        times=tuple(times_of(evidence, name, reference.name if reference else beside)),
        archs=wanted if kernels else (),
    )


def reference_of(study: Study) -> Variant | None:
    """The reference that is torch alone, the primary one where it is: everybody who has the package
    has torch. None where there is no such reference.
    """
    plain = [one for one in study.ladder.references if is_plain(study, one)]
    primary = [one for one in plain if one.name == study.ladder.primary_reference]
    return next(iter([*primary, *plain]), None)


def is_plain(study: Study, reference: Variant) -> bool:
    """Whether torch alone runs it, and nothing of it is compiled."""
    paths = source_files(study, reference)
    texts = {path.name: readable_text(path) for path in paths}
    return (
        bool(paths)
        and not reference.needs
        and all(path.suffix == ".py" for path in paths)
        and not any("cuda.kernel" in text for text in texts.values())
        and not is_compiling(paths)
        and packaging.dependencies(texts, kernels=False) == [packaging.TORCH]
    )


def sources(subject: Subject) -> dict[str, bytes]:
    """The study's files that travel, by name, with imports of the package's runtime."""
    study = subject.study
    chosen = [subject.variant, *([subject.reference] if subject.reference else [])]
    paths = [path for each in chosen for path in source_files(study, each)]
    paths += named_from(study.folder, "study.py")
    found = {}
    for path in dict.fromkeys(paths):
        name = path.relative_to(study.folder).as_posix()
        python = path.suffix == ".py"
        found[name] = packaging.localised(path).encode() if python else path.read_bytes()
    return found


def facts_of(subject: Subject, package: str, found: Packable) -> Facts:
    study, variant, reference = subject.study, subject.variant, subject.reference
    if not study.name.isidentifier():
        raise UsageError(
            f"the study '{study.name}' has no name that a function can have",
            hint="letters, digits and '_': rename its folders",
        )
    function = f"{study.name}_" if study.name in RESERVED else study.name
    return Facts(
        package=package,
        function=function,
        study=study.name,
        variant=variant.name,
        module=base_name(variant.name),
        params=dict(variant.params),
        arguments=found.arguments,
        outputs=found.outputs,
        returns=found.returns,
        in_place=tuple(getattr(study.module, "in_place", ())),
        reference=base_name(reference.name) if reference else "",
        reference_params=dict(reference.params) if reference else {},
        keeps=kept_between_calls(source_files(study, variant)),
        checked=subject.checked,
        refused=subject.refused,
        default_shape=study.default_shape,
        domain=found.domain,
    )


def licence_of(workspace: Workspace) -> tuple[str, bytes | None]:
    """What its ``pyproject.toml`` calls the licence ("" for nothing), and the text. That of the
    built-in workspace is the workbench's own.
    """
    found = next((p for n in LICENCES if (p := workspace.root / n).is_file()), None)
    if found is None and workspace.packaged:
        return _own_licence()
    name: object = ""
    with suppress(OSError, WorkbenchError):
        project = read_toml(workspace.root / "pyproject.toml").get("project")
        name = project.get("license") if isinstance(project, dict) else ""
    return name if isinstance(name, str) else "", found.read_bytes() if found else None


def _own_licence() -> tuple[str, bytes | None]:
    try:
        own = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "", None
    texts = [file for file in own.files or () if file.name in LICENCES]
    text = own.locate_file(texts[0]).read_bytes() if texts else None  # type: ignore[attr-defined]
    return str(own.metadata.json.get("license_expression", "")), text


def environment_of(subject: Subject) -> Provenance:
    """That of the timing at the shape where the step is judged, else of its check."""
    shape = subject.row.judged_at or subject.target.shape
    timing = fullest_timing(subject.evidence[shape], [subject.variant.name])
    if timing is not None:
        return timing.timing.provenance
    assert subject.build is not None  # it is kept
    return subject.build.provenance


def provenance_of(subject: Subject, facts: Facts, found: Packable, cubins: Path) -> Shipped:
    study, row, name = subject.study, subject.row, subject.variant.name
    assert row.step is not None  # it is kept
    assert row.verdict is not None
    where = f" at {row.judged_at}" if row.judged_at else ""
    return Shipped(
        date=now(),
        workbench=workbench.__version__,
        study=study.name,
        variant=name,
        key_change=row.step.key_change,
        fingerprint=Fingerprints(study).of_sources(name),
        judged_at=row.judged_at or subject.target.shape,
        verdict=f"{row.verdict.label}{where}",
        gates={gate.name: sentence(gate.why) for gate in row.gates},
        commit=commit_of(subject.target.workspace),
        sources={
            path.relative_to(study.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(source_files(study, subject.variant))
        },
        environment=environment_of(subject),
        times=subject.times,
        cubins=tuple(cubins_of(subject, cubins)),
        compiler=found.compiler,
        keeps=facts.keeps,
    )


def cubins_of(subject: Subject, folder: Path) -> Iterator[ShippedCubin]:
    """Those that were built, beside the machine code that was measured on its architecture."""
    build = subject.build
    known = {kernel.code for kernel in build.kernels if kernel.code} if build else set()
    there = build.arch if build else ""
    index = folder / "index.json"
    built = json_data(index.read_bytes()) if index.is_file() else {}
    for each in built.values():
        found = {key: each[key] for key in ShippedCubin.__struct_fields__ if key in each}
        yield ShippedCubin(
            **found, measured=each["code"] in known if known and each["arch"] == there else None
        )


def other_code(shipped: Shipped) -> str:
    """What of the cubins is, or may be, other machine code than was measured; "" for nothing."""
    here, there = shipped.compiler, shipped.environment.nvrtc or "another"
    built = f"built with NVRTC {here}, measured with {there}"
    other = sum(cubin.measured is False for cubin in shipped.cubins)
    if other:
        return f"{other} of {len(shipped.cubins)} cubins differ from the measured ones: {built}"
    unknown = all(cubin.measured is None for cubin in shipped.cubins)
    if shipped.cubins and unknown and here.partition(" ")[0] != there:
        return f"the cubins may differ from the measured ones: {built}"
    return ""


def commit_of(workspace: Workspace) -> str:
    """The one that is checked out where the kernels are as they are there; "" is not collected."""
    try:
        repository = repository_of(workspace)
        return "" if repository.is_dirty else repository.commit("HEAD").sha
    except WorkbenchError:
        return ""
