"""Write a kept variant as a project of kernel-builder, which the `kernels` package loads."""

from __future__ import annotations

import ast
import hashlib
import json
import keyword
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec import structs, to_builtins

import workbench
from workbench.app.judge import judged
from workbench.app.target import Target, require_arch
from workbench.children import temporary_folder
from workbench.cuda.includes import expand_includes
from workbench.derive.speedup import LEVEL, ratio_of, session_times, time_of
from workbench.errors import GateFailed, UsageError, WorkbenchError
from workbench.evidence import store
from workbench.evidence.records import Provenance, Shipped, ShippedTime, Timing
from workbench.judge.findings import sentence
from workbench.judge.ladder import Row
from workbench.load import ShapeEvidence, VariantEvidence, fullest_timing, load
from workbench.render.document.phrases import NOT_JUDGED
from workbench.render.numbers import number
from workbench.render.templates import rendered, template_environment
from workbench.run.protocol import Domain, Packable, ShippedKernel
from workbench.run.recording import now
from workbench.run.repository import repository_of
from workbench.run.side_jobs import packable
from workbench.study.files import alone, read_text, read_toml, readable_text, stands, write_bytes
from workbench.study.front_ends import imported, is_compiling, kept_between_calls, package_of
from workbench.study.model import Study, Variant, base_name
from workbench.study.sources import Fingerprints, named_from, source_files
from workbench.study.workspace import Workspace, including, packaged_content
from workbench.words import ABSENT, HEADLINE, CheckResult, GateState, Status, Verdict

MEASURE = "`workbench ablate` measures it where there is a GPU with ncu"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_IMPORT = re.compile(r"^(\s*)from workbench((?:\.\w+)*) import", re.MULTILINE)
PORTABLE = ("cuda", "Shape", "Tolerance", "Work")  # of ``workbench``: a package has its own
Facts = dict[str, Any]  # as JSON
OFFERED = ("counts", "layers", "op", "strict")
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "COPYING")
# The names of kernels in a source: what stands between ``__global__`` and the parameters.
_KERNEL = re.compile(
    r"__global__(?:\s|void\b|static\b|inline\b|__\w+__\s*\((?:[^()]|\([^()]*\))*\)|__\w+__\b)*"
    r"(\w+)\s*\("
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A kept variant, what answers for it, and what is recorded of it. ``archs`` are those that its
    kernels are to be built for, none without kernels.
    """

    target: Target
    evidence: Mapping[str, ShapeEvidence]  # by shape
    row: Row
    variant: Variant
    reference: Variant | None
    checked: tuple[str, ...]
    times: tuple[ShippedTime, ...]
    archs: tuple[str, ...]

    @property
    def study(self) -> Study:
        return self.target.study


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
    if NAME.fullmatch(name) is None or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise UsageError(
            f"'{name}' is no name for a package",
            hint="small letters, digits and '-' between them, such as attention-h200",
        )
    folder = (to or Path(name)).absolute()
    require_room(folder)
    subject = subject_of(target, variant, archs)
    if archs and not subject.archs:
        target.note(f"{subject.variant.name} has no kernels of cuda.kernel: --arch changes nothing")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(".workbench-ship-", folder.parent) as scratch:
        made = scratch / folder.name
        made.mkdir()
        shipped = written(subject, name, made)
        with alone(folder):
            require_room(folder)
            made.rename(folder.resolve())  # whole or not at all
    return Shipment(folder, subject, shipped)


def require_room(folder: Path) -> None:
    """Raises UsageError where something is there."""
    if stands(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is there already, and is no empty folder",
            hint="name another with --to, or remove it",
        )


# ---- the variant -----------------------------------------------------------------------------


def subject_of(target: Target, name: str, archs: Sequence[str]) -> Subject:
    """Raises GateFailed for what is not kept, or stale, and UsageError for unknown names."""
    target.study, (name,) = including(target.study, [name])
    row = judged(target)[0].row(name)
    evidence = load(target.study, target.folder, {shape: [name] for shape in target.study.shapes})
    own = evidence[target.shape].variants[name]
    require_kept(row, own)
    checked = tuple(s for s, check in own.checks.items() if check.status == CheckResult.CORRECT)
    if not checked:
        raise GateFailed(f"'{name}' is recorded as correct at no shape", hint=MEASURE)
    for arch in archs:
        require_arch(arch)
    reference = reference_of(target.study)
    beside = reference.name if reference else target.study.ladder.primary_reference
    build = own.build
    return Subject(
        target=target,
        evidence=evidence,
        row=row,
        variant=target.study.variants[name],
        reference=reference,
        checked=checked,
        times=tuple(times_of(evidence, name, beside)),
        archs=(tuple(archs) or (build.arch,)) if build and build.kernels else (),
    )


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


def times_of(
    every: Mapping[str, ShapeEvidence], variant: str, reference: str
) -> Iterator[ShippedTime]:
    """At every shape where it was timed, beside the reference where that was timed too."""
    for shape, evidence in every.items():
        timing = fullest_timing(evidence, filter(None, [variant, reference]))
        if timing is None or variant not in timing.chained:
            continue
        beside = reference if reference in timing.chained else ""
        if time := timed(timing.timing, variant, beside, file=f"{shape}/timings/{timing.file}"):
            check = evidence.variants[variant].checks.get(shape)
            yield structs.replace(time, times_reference=check.times_reference if check else None)


def timed(timing: Timing, variant: str, reference: str, *, file: str = "") -> ShippedTime | None:
    """None where a call adds nothing."""
    every = session_times(timing.together, timing.wrong)
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


def reference_of(study: Study) -> Variant | None:
    """The reference that is torch alone, the primary one where it is: everybody who has the package
    has torch. None where there is no such reference.
    """
    plain = [variant for variant in study.ladder.references if is_plain(study, variant)]
    primary = [variant for variant in plain if variant.name == study.ladder.primary_reference]
    return next(iter([*primary, *plain]), None)


def is_plain(study: Study, reference: Variant) -> bool:
    """Whether torch alone runs it, and nothing of it is compiled."""
    paths = source_files(study, reference)
    texts = [readable_text(path) for path in paths]
    return (
        bool(paths)
        and not reference.needs
        and all(path.suffix == ".py" for path in paths)
        and not any("cuda.kernel" in text for text in texts)
        and not is_compiling(paths)
        and not needed_by(texts)
    )


def needed_by(texts: Sequence[str]) -> list[str]:
    """The packages beside torch that some Python sources import."""
    modules = sorted({name for text in texts for name in imported(text)[0]})
    others = (*sys.stdlib_module_names, "torch", "workbench")
    packages = (package_of(name) for name in modules if name.partition(".")[0] not in others)
    return list(dict.fromkeys(packages))


# ---- the files -------------------------------------------------------------------------------


def written(subject: Subject, name: str, folder: Path) -> Shipped:
    study, reference = subject.study, subject.reference
    package, top = name.replace("-", "_"), f"torch-ext/{name.replace('-', '_')}"
    python, sources = sources_of(subject)
    learned = packable(
        study, subject.variant, reference, subject.checked, has_kernels=bool(subject.archs)
    )
    facts = facts_of(subject, package, learned)
    shipped = provenance_of(subject, facts)
    licence, licence_text = licence_of(subject.target.workspace)
    content = packaged_content() / "templates" / "package"
    texts = {f"{top}/sources/{file}": text for file, text in python.items()}
    texts |= rendered_texts(subject, name, facts, shipped, learned.domain)
    texts |= {
        f"{top}/{file}": read_text(content / file) for file in ("op.py", "cuda.py", "runtime.py")
    }
    texts |= {
        f"{top}/sources/__init__.py": "",
        f"{top}/variant.json": json.dumps(facts, indent=1) + "\n",
        "build.toml": build_toml(subject, name, licence, learned.kernels),
        "flake.nix": read_text(content / "flake.nix"),
        f"tests/test_{package}.py": read_text(content / "test_op.py"),
    }
    if subject.archs:
        texts |= {f"cuda/src/{file}": text for file, text in sources.items()}
        texts |= {
            f"cuda/k{index:02}.cu": unit(index, kernel, study.folder)
            for index, kernel in enumerate(learned.kernels)
        }
        texts |= {f"cuda/{file}": read_text(content / file) for file in ("kernel.h", "launch.h")}
        texts |= {"torch-ext/torch_binding.cpp": read_text(content / "torch_binding.cpp")}
        texts |= {"build.py": read_text(content / "build.py")}
    whole = "".join(f"{path}\0{text}\0" for path, text in sorted(texts.items()))
    identity = f"_{package}_cuda_{hashlib.sha256(whole.encode()).hexdigest()[:7]}"
    described: Facts = {"id": identity, "name": name, "version": 1, "python-depends": []}
    described["backend"] = {"type": "cuda"}
    if subject.archs:
        described["backend"]["archs"] = [capability(arch).rstrip("af") for arch in subject.archs]
    described["license"] = licence or "other"
    texts[f"{top}/metadata.json"] = json.dumps(described, indent=1) + "\n"
    files = {path: text.encode(errors="replace") for path, text in texts.items()}
    if licence_text is not None:
        files["LICENSE"] = licence_text
    shipped = structs.replace(
        shipped, files={path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    )
    for path, data in files.items():
        write_bytes(folder / path, data)
    store.write(folder / top / "provenance.json", shipped)
    if not subject.archs:  # nothing is to be compiled: this is what kernel-builder would write
        for file in sorted((folder / top).rglob("*.*")):
            inside = file.relative_to(folder / top)
            write_bytes(folder / "build" / "torch-cuda" / inside, file.read_bytes())
        ops = read_text(content / "ops.py").replace("IDENTITY", identity)
        write_bytes(folder / "build" / "torch-cuda" / "_ops.py", ops.encode())
    return shipped


def sources_of(subject: Subject) -> tuple[dict[str, str], dict[str, str]]:
    """The Python of the study that travels, with imports of the package's own words, and the files
    of its kernels. Raises UsageError for a file that imports more of the workbench.
    """
    study = subject.study
    variants = [subject.variant, *([subject.reference] if subject.reference else [])]
    paths = [path for variant in variants for path in source_files(study, variant)]
    texts = {
        path.relative_to(study.folder).as_posix(): read_text(path)
        for path in [*paths, *named_from(study.folder, "study.py")]
    }
    python = {name: text for name, text in texts.items() if name.endswith(".py")}
    for name, text in python.items():
        for node in ast.walk(ast.parse(text)):
            for what in _of_workbench(node):
                if what not in PORTABLE:
                    raise UsageError(
                        f"{name}:{getattr(node, 'lineno', 0)} imports {what} of the workbench, "
                        "which does not travel",
                        hint=f"what does: from workbench import {', '.join(PORTABLE)}",
                    )
    moved = {name: _IMPORT.sub(r"\1from ..runtime\2 import", t) for name, t in python.items()}
    moved = {
        name: text.replace("from ..runtime.cuda", "from ..cuda") for name, text in moved.items()
    }
    return moved, {name: text for name, text in texts.items() if name not in python}


def _of_workbench(node: ast.AST) -> Iterator[str]:
    """What a statement imports of it; ``import workbench`` would give all of it."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        yield from ("itself" for name in names if name.partition(".")[0] == "workbench")
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "workbench":
        inside = (node.module or "").removeprefix("workbench").removeprefix(".")
        yield from ([inside] if inside else [alias.name for alias in node.names])


def unit(index: int, kernel: ShippedKernel, folder: Path) -> str:
    """A source that compiles a kernel with its macros, and registers it. Kernels of one file are
    compiled several times, so their names are made different.
    """
    names = set(_KERNEL.findall(expand_includes(folder / kernel.source)))
    lines = [f"#define {name} {value}" for name, value in kernel.defines.items()]
    lines += [f"#define {name} k{index:02}_{name}" for name in sorted(names)]
    flags = [kernel.early_start, kernel.cooperative]
    how = ", ".join(str(flag).lower() for flag in flags)
    carveout = -1 if kernel.carveout is None else kernel.carveout
    key = json.dumps(kernel.key)
    return (
        '#include "kernel.h"\n\n' + "\n".join(lines) + f'\n#include "src/{kernel.source}"\n\n'
        f"static const int workbench_index = workbench_package::registered(\n    {key},\n"
        f"    &{kernel.name}, {how}, {carveout});\n"
    )


def build_toml(subject: Subject, name: str, licence: str, kernels: Sequence[ShippedKernel]) -> str:
    """Write the build of kernel-builder: a section for each set of options of ptxas."""
    lines = ["[general]", f"name = {json.dumps(name)}", "version = 1", "edition = 5"]
    lines += [f"license = {json.dumps(licence)}"] if licence else []
    lines += ['backends = ["cuda"]', ""]
    if not subject.archs:
        return "\n".join([*lines, "[torch-noarch]", 'pyext = ["py", "json"]', ""])
    lines += ["[torch]", 'pyext = ["py", "json"]', 'src = ["torch-ext/torch_binding.cpp"]']
    by_options: dict[tuple[str, ...], list[str]] = {}
    for index, kernel in enumerate(kernels):
        by_options.setdefault(kernel.options, []).append(f"cuda/k{index:02}.cu")
    for index, (options, units) in enumerate(by_options.items()):
        lines += ["", f"[kernel.kernels{index}]", 'backend = "cuda"', 'depends = ["torch"]']
        lines += [f"cuda-capabilities = {json.dumps([capability(a) for a in subject.archs])}"]
        lines += (
            [f"cuda-flags = {json.dumps([f'-Xptxas={o}' for o in options])}"] if options else []
        )
        lines += [f"src = {json.dumps(units)}"]
    return "\n".join([*lines, ""])


def capability(arch: str) -> str:
    """``9.0a`` of ``sm_90a``."""
    return re.sub(r"sm_(\d+)(\d)([af]?)", r"\1.\2\3", arch)


def facts_of(subject: Subject, package: str, learned: Packable) -> Facts:
    """What ``op.py`` knows of the variant: ``variant.json``."""
    study, variant, reference = subject.study, subject.variant, subject.reference
    if not study.name.isidentifier():
        raise UsageError(
            f"the study '{study.name}' has no name that a function can have",
            hint="letters, digits and '_': rename its folders",
        )
    in_place = list(getattr(study.module, "in_place", ()))
    return {
        "package": package,
        "function": f"{study.name}_" if study.name in OFFERED else study.name,
        "schema": schema(learned.arguments, len(learned.outputs), in_place),
        "variant": variant.name,
        "module": base_name(variant.name),
        "params": dict(variant.params),
        "arguments": learned.arguments,
        "names": [name for name, _ in learned.arguments],
        "outputs": learned.outputs,
        "in_place": in_place,
        "reference": base_name(reference.name) if reference else "",
        "reference_params": dict(reference.params) if reference else {},
        "keeps": kept_between_calls(source_files(study, variant)),
        "capabilities": [capability(arch) for arch in subject.archs],
        "checked": subject.checked,
        "domain": to_builtins(learned.domain),
    }


def schema(arguments: Sequence[tuple[str, str]], outputs: int, in_place: Sequence[str] = ()) -> str:
    """The operator's schema in the words of torch. Where some arguments are changed in place, torch
    passes all by name, to functions that have names of their own (``mode``).
    """
    typed = ", ".join(
        f"{kind}{f'(a{index}!)' * (name in in_place)} {name}{'_' * bool(in_place)}"
        for index, (name, kind) in enumerate(arguments)
    )
    tensors = ", ".join(["Tensor"] * outputs)
    return f"({typed}) -> {tensors if outputs == 1 else f'({tensors})'}"


def rendered_texts(
    subject: Subject, name: str, facts: Facts, shipped: Shipped, domain: Domain
) -> dict[str, str]:
    study, workspace = subject.study, subject.target.workspace
    licence, text = licence_of(workspace)
    returned = ["Tensor"] * len(facts["outputs"])
    several = f"tuple[{', '.join(returned)}]" if returned else "None"
    beside = next((time.reference for time in subject.times if time.reference), "the reference")
    reference = subject.reference
    sources = source_files(study, subject.variant)
    values = {
        "facts": facts,
        "shipped": shipped,
        "distribution": name,
        "title": plain(study.ladder.title or study.name),
        "key_change": plain(shipped.key_change),
        "signature": ", ".join(f"{name}: {kind}" for name, kind in facts["arguments"]),
        "call": ", ".join(facts["names"]),
        "returned": "Tensor" if len(returned) == 1 else several,
        "layer": "".join(part.capitalize() for part in facts["function"].split("_")),
        "archs": facts["capabilities"],
        "needs": needed_by([read_text(path) for path in sources if path.suffix == ".py"]),
        "reference": plain(reference.title or reference.name) if reference else "The study's code",
        "compared": beside,
        "gpu": shipped.environment.gpu or subject.target.folder.gpu,
        "driver": shipped.environment.driver,
        "rows": [time_row(time) for time in subject.times],
        "timed": [time.shape for time in subject.times if time.shape in subject.checked],
        "domain": list(described(domain, facts)),
        "has_backward": hasattr(study.module, "backward"),
        "licence": licence,
        "has_licence": text is not None,
    }
    package = facts["package"]
    named = {
        f"torch-ext/{package}/__init__.py": "init.py.j2",
        f"benchmarks/benchmark_{package}.py": "benchmark_op.py.j2",
        "CARD.md": "CARD.md.j2",
    }
    environment = template_environment(workspace.template_folders)
    return {path: rendered(environment, f"package/{n}", **values) for path, n in named.items()}


def described(domain: Domain, facts: Facts) -> Iterator[str]:
    """The inputs that the variant answers, in words."""
    names = [name for name, kind in facts["arguments"] if kind == "Tensor"]
    for case in domain.cases:
        fixed = {(which, place): extent for which, place, extent in case.fixed}
        sizes = [
            f"{name} [{', '.join(str(fixed.get((which, i), 'any')) for i in range(rank))}]"
            for which, (name, rank) in enumerate(zip(names, case.ranks, strict=True))
        ]
        types = "; ".join(" and ".join(dict.fromkeys(each)) for each in case.dtypes)
        yield f"Tensors {', '.join(sizes)} on one GPU, of {types}."
        for group in case.equal:
            yield f"Equal: {', '.join(f'{names[which]}.shape[{place}]' for which, place in group)}."
    for name, values in domain.values.items():
        if values:
            yield f"{name} is {' or '.join(map(repr, values))}."


def time_row(time: ShippedTime) -> list[str]:
    ratio = ABSENT
    if time.ratio is not None:
        level = "" if time.level == LEVEL else f" at {time.level} %"
        interval = "" if time.low is None else f" [{time.low:.3g}, {time.high:.3g}]{level}"
        ratio = f"{time.ratio:.3g}x{interval}"
    error = ABSENT if time.times_reference is None else f"{time.times_reference:.3g}x"
    return [time.shape, number(time.microseconds), ratio, error]


def plain(text: str) -> str:
    """In a line that ends neither a docstring nor a string of TOML."""
    return " ".join(text.replace('"', "'").replace("\\", "/").split())


# ---- where it comes from ---------------------------------------------------------------------


def licence_of(workspace: Workspace) -> tuple[str, bytes | None]:
    """What its ``pyproject.toml`` calls the licence ("" for nothing), and the text. That of the
    built-in workspace is the workbench's own.
    """
    path = next((p for n in LICENCES if (p := workspace.root / n).is_file()), None)
    if path is None and workspace.packaged:
        with suppress(metadata.PackageNotFoundError):
            own = metadata.distribution("kernel-workbench")
            files = [file for file in own.files or () if file.name in LICENCES]
            text = own.locate_file(files[0]).read_bytes() if files else None  # type: ignore[attr-defined]
            return str(own.metadata.json.get("license_expression", "")), text
        return "", None
    name: object = ""
    with suppress(OSError, WorkbenchError):
        project = read_toml(workspace.root / "pyproject.toml").get("project")
        name = project.get("license") if isinstance(project, dict) else ""
    return name if isinstance(name, str) else "", path.read_bytes() if path else None


def environment_of(subject: Subject) -> Provenance:
    """That of the timing at the shape where the step is judged, else of its check."""
    shape = subject.row.judged_at or subject.target.shape
    timing = fullest_timing(subject.evidence[shape], [subject.variant.name])
    if timing is not None:
        return timing.timing.provenance
    build = subject.evidence[subject.target.shape].variants[subject.variant.name].build
    assert build is not None  # it is kept
    return build.provenance


def provenance_of(subject: Subject, facts: Facts) -> Shipped:
    study, row, name = subject.study, subject.row, subject.variant.name
    assert row.step is not None  # it is kept
    assert row.verdict is not None
    where = f" at {row.judged_at}" if row.judged_at else ""
    commit = ""
    with suppress(WorkbenchError):
        repository = repository_of(subject.target.workspace)
        commit = "" if repository.is_dirty else repository.commit("HEAD").sha
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
        commit=commit,
        sources={
            path.relative_to(study.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(source_files(study, subject.variant))
        },
        environment=environment_of(subject),
        times=subject.times,
        keeps=facts["keeps"],
    )
