"""Write a kept variant as a project of kernel-builder, which the `kernels` package loads."""

from __future__ import annotations

import ast
import hashlib
import json
import keyword
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec import structs, to_builtins

import workbench
from workbench.app.judge import judged
from workbench.app.target import Target, require_arch
from workbench.app.weigh import needed_by, reference_of, times_of
from workbench.children import temporary_folder
from workbench.cuda.includes import expand_includes
from workbench.errors import GateFailed, UsageError, WorkbenchError
from workbench.evidence import store
from workbench.evidence.records import Shipped, ShippedTime
from workbench.judge.findings import sentence
from workbench.judge.ladder import Row
from workbench.load import VariantEvidence, fullest_timing, load
from workbench.render.document.phrases import NOT_JUDGED
from workbench.render.templates import rendered, template_environment
from workbench.run.protocol import ShippedKernel
from workbench.run.recording import now
from workbench.run.repository import repository_of
from workbench.run.side_jobs import packable
from workbench.study.files import alone, read_text, read_toml, stands, write_bytes
from workbench.study.front_ends import kept_between_calls
from workbench.study.model import Study, Variant, base_name
from workbench.study.sources import Fingerprints, named_from, source_files
from workbench.study.workspace import Workspace, including, packaged_content
from workbench.words import CheckResult, GateState, Status, Verdict

MEASURE = "`workbench ablate` measures it where there is a GPU with ncu"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
PORTABLE = ("cuda", "Shape", "Tolerance", "Work", "problems.given")  # a package has its own
MOVED = {
    r"^(\s*)from workbench\.problems import": r"\1from .. import",
    r"^(\s*)from workbench(\.cuda)? import": r"\1from ..cuda import",
}
# The names of kernels in a source: what stands between ``__global__`` and the parameters.
_KERNEL = re.compile(
    r"__global__(?:\s|void\b|static\b|inline\b|__\w+__\s*\((?:[^()]|\([^()]*\))*\)|__\w+__\b)*"
    r"(\w+)\s*\("
)
Facts = dict[str, Any]  # of ``variant.json``: what ``op.py`` knows of the variant


@dataclass(frozen=True)
class Shipment:
    """A package that was written to ``folder``; ``archs`` are those that it is to be built for."""

    folder: Path
    shipped: Shipped
    archs: tuple[str, ...] = field(repr=False)


def ship(
    target: Target, name: str, package: str, to: Path | None, archs: Sequence[str]
) -> Shipment:
    """Write a kept variant as ``package``, to ``to`` or a folder of that name. Raises UsageError
    for a name that cannot be one, or a folder with something in it; GateFailed as ``require_kept``.
    """
    folder = (to or Path(package)).absolute()
    is_taken = keyword.iskeyword(package) or package in sys.stdlib_module_names
    if NAME.fullmatch(package) is None or is_taken:
        raise UsageError(
            f"'{package}' is no name for a package",
            hint="small letters, digits and '-' between them, such as attention-h200",
        )
    require_room(folder)
    target.study, (name,) = including(target.study, [name])
    study = target.study
    if not study.name.isidentifier():
        raise UsageError(
            f"the study '{study.name}' has no name that a function can have",
            hint="letters, digits and '_': rename its folders",
        )
    row = judged(target)[0].row(name)
    evidence = load(study, target.folder, {shape: [name] for shape in study.shapes})
    recorded = evidence[target.shape].variants[name]
    reference = reference_of(study)
    beside = reference.name if reference else study.ladder.primary_reference
    times = tuple(times_of(evidence, name, beside))
    gates = require_kept(row, recorded, times)
    checks = recorded.checks.items()
    checked = tuple(s for s, check in checks if check.status == CheckResult.CORRECT)
    if not checked:
        raise GateFailed(f"'{name}' is recorded as correct at no shape", hint=MEASURE)
    for arch in archs:
        require_arch(arch)
    build = recorded.build
    assert build is not None  # it is kept
    archs = (tuple(archs) or (build.arch,)) if build.kernels else ()
    variant = study.variants[name]
    learned = packable(study, variant, reference, checked, has_kernels=bool(archs))
    keeps = kept_between_calls(source_files(study, variant))
    shape = row.judged_at or target.shape
    timing = fullest_timing(evidence[shape], [name])
    commit = ""
    with suppress(WorkbenchError):
        repository = repository_of(target.workspace)
        commit = "" if repository.is_dirty else repository.commit("HEAD").sha
    assert row.step is not None  # it is kept
    where = f" at {row.judged_at}" if row.judged_at else ""
    shipped = Shipped(
        date=now(),
        workbench=workbench.__version__,
        study=study.name,
        variant=name,
        key_change=row.step.key_change,
        fingerprint=Fingerprints(study).of_sources(name),
        judged_at=shape,
        verdict=f"{Verdict.KEPT.label}{where}",
        gates=gates,
        commit=commit,
        sources={
            path.relative_to(study.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(source_files(study, variant))
        },
        environment=timing.timing.provenance if timing is not None else build.provenance,
        times=times,
        keeps=keeps,
    )
    facts: Facts = {
        "package": package.replace("-", "_"),
        "function": f"{study.name}_" if study.name == "op" else study.name,
        "schema": schema(learned.arguments, learned.outputs),
        "variant": name,
        "module": base_name(name),
        "params": dict(variant.params),
        "arguments": learned.arguments,
        "reference": base_name(reference.name) if reference else "",
        "reference_params": dict(reference.params) if reference else {},
        "has_backward": hasattr(study.module, "backward"),
        "keeps": keeps,
        "capabilities": [capability(arch) for arch in archs],
        "checked": checked,
        "domain": to_builtins(learned.domain),
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(".workbench-ship-", folder.parent) as scratch:
        made = scratch / folder.name
        shipped = write(target, package, facts, shipped, learned.kernels, made)
        with alone(folder):
            require_room(folder)
            made.rename(folder.resolve())  # whole or not at all
    return Shipment(folder, shipped, archs)


def require_room(folder: Path) -> None:
    """Raises UsageError where something is there."""
    if stands(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is there already, and is no empty folder",
            hint="name another with --to, or remove it",
        )


def require_kept(
    row: Row, evidence: VariantEvidence, times: Sequence[ShippedTime]
) -> dict[str, str]:
    """Say by gate why a variant is kept, by evidence of the present sources at every shape that it
    was checked or timed at. The file of a kept ``try`` has no parent: it is correct, and faster
    than its reference. Raises GateFailed for any other.
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
    gates = {gate.name: sentence(gate.why) for gate in row.gates}
    if row.verdict == Verdict.KEPT:
        return gates
    is_tried = row.step is not None and row.step.key_change.startswith("as given: ")
    if is_tried and times and all((time.low or 0) > 1 for time in times):
        fastest = max(times, key=lambda time: time.ratio or 0)
        return {"faster": f"{fastest.ratio:.3g}x of {fastest.reference} at {fastest.shape}"}
    failed = [gate for gate in row.gates if gate.state == GateState.FAILED]
    not_kept = failed or [gate for gate in row.gates if gate.state == GateState.OPEN]
    why = "; ".join(f"{gate.name}: {gates[gate.name]}" for gate in not_kept) or why
    why = why or (f"{', '.join(missing)} missing" if missing else "")
    raise GateFailed(
        f"'{name}' is not kept ({row.verdict.label if row.verdict else NOT_JUDGED})"
        + (f": {why}" if why else ""),
        hint="only steps that are kept are shipped" if failed else MEASURE,
    )


def write(
    target: Target,
    name: str,
    facts: Facts,
    shipped: Shipped,
    kernels: Sequence[ShippedKernel],
    folder: Path,
) -> Shipped:
    """Write the files, and return the record with their hashes."""
    study, package = target.study, facts["package"]
    top = f"torch-ext/{package}"
    licence, licence_text = licence_of(target.workspace)
    variant, reference = study.variants[facts["variant"]], reference_of(study)
    python, sources = sources_of(study, [variant, *([reference] if reference else [])])
    values = {
        "facts": facts,
        "shipped": shipped,
        "distribution": name,
        "title": plain(study.ladder.title or study.name),
        "key_change": plain(shipped.key_change),
        "needs": needed_by([text for file, text in python.items() if file != "study.py"]),
        "reference": plain(reference.title or reference.name) if reference else "The study's code",
        "compared": next((time.reference for time in shipped.times if time.reference), "reference"),
        "timed": [time.shape for time in shipped.times if time.shape in facts["checked"]],
        "licence": licence,
        "has_licence": licence_text is not None,
    }
    content = packaged_content() / "templates" / "package"
    environment = template_environment(target.workspace.template_folders)
    texts = {f"{top}/sources/{file}": text for file, text in python.items()}
    own = ["op.py", "cuda.py", *(["given.py"] if "import given" in python["study.py"] else [])]
    texts |= {f"{top}/{file}": read_text(content / file) for file in own}
    texts |= {
        f"{top}/__init__.py": f'"""{values["title"]}. CARD.md has what was measured of it."""\n\n'
        f"from . import op\n\n{facts['function']} = op.run\n",
        f"{top}/sources/__init__.py": "",
        f"{top}/variant.json": json.dumps(facts, indent=1) + "\n",
        "build.toml": build_toml(name, licence, facts["capabilities"], kernels),
        "flake.nix": read_text(content / "flake.nix"),
        f"tests/test_{package}.py": read_text(content / "test_op.py"),
        f"benchmarks/benchmark_{package}.py": rendered(
            environment, "package/benchmark_op.py.j2", **values
        ),
        "CARD.md": rendered(environment, "package/CARD.md.j2", **values),
    }
    if kernels:
        texts |= {f"cuda/src/{file}": text for file, text in sources.items()}
        texts |= {
            f"cuda/k{index:02}.cu": unit(index, kernel, study.folder)
            for index, kernel in enumerate(kernels)
        }
        for path in ("cuda/launch.h", "torch-ext/torch_binding.cpp", "build.py"):
            texts[path] = read_text(content / Path(path).name)
    whole = "".join(f"{path}\0{text}\0" for path, text in sorted(texts.items()))
    identity = f"_{package}_cuda_{hashlib.sha256(whole.encode()).hexdigest()[:7]}"
    backend: Facts = {"type": "cuda"}
    if kernels:
        backend["archs"] = [arch.rstrip("af") for arch in facts["capabilities"]]
    described_: Facts = {"id": identity, "name": name, "version": 1, "python-depends": []}
    described_ |= {"backend": backend, "license": licence or "other"}
    texts[f"{top}/metadata.json"] = json.dumps(described_, indent=1) + "\n"
    files = {path: text.encode(errors="replace") for path, text in texts.items()}
    files |= {"LICENSE": licence_text} if licence_text is not None else {}
    shipped = structs.replace(
        shipped, files={path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    )
    for path, data in files.items():
        write_bytes(folder / path, data)
    store.write(folder / top / "provenance.json", shipped)
    ops = read_text(content / "ops.py").replace("IDENTITY", identity)
    built = folder / "build" / "torch-cuda"
    if not kernels:  # nothing is to be compiled: this is what kernel-builder would write
        for file in sorted((folder / top).rglob("*.*")):
            write_bytes(built / file.relative_to(folder / top), file.read_bytes())
    write_bytes((folder if kernels else built) / "_ops.py", ops.encode())
    return shipped


def sources_of(study: Study, variants: Sequence[Variant]) -> tuple[dict[str, str], dict[str, str]]:
    """The Python of the study that travels, with imports of the package's own words, and the files
    of its kernels. Raises UsageError for a file that imports more of the workbench.
    """
    paths = [path for variant in variants for path in source_files(study, variant)]
    texts = {
        path.relative_to(study.folder).as_posix(): read_text(path)
        for path in [*paths, *named_from(study.folder, "study.py")]
    }
    python = {name: text for name, text in texts.items() if name.endswith(".py")}
    given = read_text(packaged_content() / "templates" / "package" / "given.py")
    offered = {*PORTABLE, *(f"given.{name}" for name in re.findall(r"^def (\w+)", given, re.M))}
    for name, text in python.items():
        wanted = [what for node in ast.walk(ast.parse(text)) for what in of_workbench(node)]
        if refused := [what for what in wanted if what not in offered]:
            raise UsageError(
                f"{name} uses {refused[0]} of the workbench, which does not travel",
                hint=f"what does: from workbench import {', '.join(PORTABLE[:-1])}; and of `try`, "
                "a Python function with inputs() or --input",
            )
        for pattern, moved in MOVED.items():
            python[name] = re.sub(pattern, moved, python[name], flags=re.MULTILINE)
    return python, {name: text for name, text in texts.items() if name not in python}


def of_workbench(node: ast.AST) -> Iterator[str]:
    """What a node of a file uses of it; ``import workbench`` would give all of it."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name.startswith("workbench"))
    elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "given":
        yield f"given.{node.attr}"
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "workbench":
        inside = (node.module or "").removeprefix("workbench").removeprefix(".")
        names = [alias.name for alias in node.names]
        yield from ["cuda"] if inside == "cuda" else [f"{inside}.{n}".lstrip(".") for n in names]


def unit(index: int, kernel: ShippedKernel, folder: Path) -> str:
    """A source that compiles a kernel with its macros, and registers it. Kernels of one file are
    compiled several times, so their names are made different.
    """
    names = set(_KERNEL.findall(expand_includes(folder / kernel.source)))
    lines = [f"#define {name} {value}" for name, value in kernel.defines.items()]
    lines += [f"#define {name} k{index:02}_{name}" for name in sorted(names)]
    how = ", ".join(str(flag).lower() for flag in (kernel.early_start, kernel.cooperative))
    carveout = -1 if kernel.carveout is None else kernel.carveout
    return (
        '#include "launch.h"\n\n' + "\n".join(lines) + f'\n#include "src/{kernel.source}"\n\n'
        "static const int workbench_registered = workbench_package::registered(\n"
        f"    {json.dumps(kernel.key)},\n    &{kernel.name}, {how}, {carveout});\n"
    )


def build_toml(
    name: str, licence: str, capabilities: Sequence[str], kernels: Sequence[ShippedKernel]
) -> str:
    """Write the build of kernel-builder: a section for each set of options of ptxas."""
    lines = ["[general]", f"name = {json.dumps(name)}", "version = 1", "edition = 5"]
    lines += [f"license = {json.dumps(licence)}"] if licence else []
    lines += ['backends = ["cuda"]', ""]
    if not kernels:
        return "\n".join([*lines, "[torch-noarch]", 'pyext = ["py", "json"]', ""])
    lines += ["[torch]", 'pyext = ["py", "json"]', 'src = ["torch-ext/torch_binding.cpp"]']
    by_options: dict[tuple[str, ...], list[str]] = {}
    for index, kernel in enumerate(kernels):
        by_options.setdefault(kernel.options, []).append(f"cuda/k{index:02}.cu")
    for index, (options, units) in enumerate(by_options.items()):
        flags = json.dumps([f"-Xptxas={option}" for option in options])
        lines += ["", f"[kernel.kernels{index}]", 'backend = "cuda"', 'depends = ["torch"]']
        lines += [f"cuda-capabilities = {json.dumps(capabilities)}", f"cuda-flags = {flags}"]
        lines += [f"src = {json.dumps(units)}"]
    return "\n".join([*lines, ""])


def capability(arch: str) -> str:
    """``9.0a`` of ``sm_90a``."""
    return re.sub(r"sm_(\d+)(\d)([af]?)", r"\1.\2\3", arch)


def schema(arguments: Sequence[tuple[str, str]], outputs: int) -> str:
    """The operator's schema in the words of torch."""
    tensors = ", ".join(["Tensor"] * outputs)
    typed = ", ".join(f"{kind} {name}" for name, kind in arguments)
    return f"({typed}) -> {tensors if outputs == 1 else f'({tensors})'}"


def plain(text: str) -> str:
    """In a line that ends neither a docstring nor a string of TOML."""
    return " ".join(text.replace('"', "'").replace("\\", "/").split())


def licence_of(workspace: Workspace) -> tuple[str, bytes | None]:
    """What its ``pyproject.toml`` calls the licence ("" for nothing), and the text. That of the
    built-in workspace is the workbench's own.
    """
    names = ("LICENSE", "LICENSE.txt", "LICENSE.md", "COPYING")
    path = next((p for n in names if (p := workspace.root / n).is_file()), None)
    if path is None and workspace.packaged:
        with suppress(metadata.PackageNotFoundError):
            own = metadata.distribution("kernel-workbench")
            files = [file for file in own.files or () if file.name in names]
            text = own.locate_file(files[0]).read_bytes() if files else None  # type: ignore[attr-defined]
            return str(own.metadata.json.get("license_expression", "")), text
        return "", None
    name: object = ""
    with suppress(OSError, WorkbenchError):
        project = read_toml(workspace.root / "pyproject.toml").get("project")
        name = project.get("license") if isinstance(project, dict) else ""
    return name if isinstance(name, str) else "", path.read_bytes() if path else None
