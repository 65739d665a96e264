"""``ship``: a kept variant written as a project of kernel-builder, which `kernels` loads."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import to_builtins

import workbench
from workbench.app.ablate import judged
from workbench.app.ratios import needed_by, reference_of, times_of
from workbench.app.target import Target, find_recorded, tell_passed_over
from workbench.children import temporary_folder
from workbench.cli.options import ShipOptions
from workbench.cli.streams import executor, note, show
from workbench.cuda.programs import expand_includes
from workbench.errors import GateFailed, UsageError, WorkbenchError
from workbench.evidence import store
from workbench.evidence.records import Shipped, ShippedTime
from workbench.judge.findings import sentence
from workbench.judge.rows import Row
from workbench.load import VariantEvidence, fullest_timing, load
from workbench.problems.flashinfer_bench import BuildSpec, Solution, SourceFile
from workbench.render.document.printed_ladder import NOT_JUDGED
from workbench.render.templates import templates
from workbench.run.protocol import Packable, ShipJob, ShippedKernel
from workbench.run.recording import now
from workbench.run.repository import repository_of
from workbench.run.side_jobs import packable
from workbench.study.files import alone, read_text, read_toml, shown_path, stands, write_bytes
from workbench.study.front_ends import kept_between_calls
from workbench.study.model import Study, base_name
from workbench.study.params import including
from workbench.study.sources import Fingerprints, named_from, source_files
from workbench.study.workspace import Workspace
from workbench.words import CheckResult, GateState, Parameter, Status, Verdict

MEASURE = "only kept steps are shipped: `workbench ablate` measures where there is a GPU with ncu"
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Imports of the workbench that a package has its own words for.
PORTABLE = re.compile(
    r"from workbench(\.cuda import .*|\.problems import given"
    r"| import ((cuda|Shape|Tolerance|Work)(, (?=.)|$))+)"
)
GIVEN = {"File", "Dotted", "call", "compared", "named", "made", "without", "plain", "exact"}
# The names of kernels in a source: what stands between ``__global__`` and the parameters.
_KERNEL = re.compile(
    r"__global__(?:\s|void\b|static\b|inline\b|__\w+__\s*\((?:[^()]|\([^()]*\))*\)|__\w+__\b"
    r"|\#[^\n]*|//[^\n]*)*"  # and lines of the preprocessor, as where a cluster is a macro's choice
    r"(\w+)\s*\("
)
Facts = dict[str, Any]  # of ``variant.json``: what ``op.py`` knows of the variant


@dataclass(frozen=True)
class Shipment:
    """A package that was written to ``folder``."""

    folder: Path
    shipped: Shipped
    capabilities: list[str] = field(repr=False)  # to build it for
    has_licence: bool = field(repr=False)


def run(options: ShipOptions) -> None:
    target = find_recorded(executor(), options.project, options.study, None, gpu=options.gpu)
    tell_passed_over(target.executor, target.workspace, [target.study.name])
    done = ship(target, options.variant, options.name, options.to, options.definition)
    show(options, done)
    if not options.json:
        note(f'hint: kernels.get_local_kernel(Path("{shown_path(done.folder)}")) loads it')


def ship(
    target: Target, name: str, package: str, to: Path | None, definition: str | None = None
) -> Shipment:
    """Write a kept variant as ``package``, to ``to`` or a folder of that name, and as a solution of
    a ``definition`` of FlashInfer-Bench. Raises UsageError for a name that cannot be one, or a
    folder with something in it; GateFailed as ``require_kept``.
    """
    folder = (to or Path(package)).absolute()
    if NAME.fullmatch(package) is None:
        raise UsageError(
            f"'{package}' is no name for a package",
            hint="small letters, digits and '-' between them, such as attention-h200",
        )
    require_room(folder)
    target.study, (name,) = including(target.study, [name])
    study, variant = target.study, target.study.variants[name]
    row = judged(target)[0].row(name)
    evidence = load(study, target.folder, {shape: [name] for shape in study.shapes})
    recorded, decided_at = evidence[target.shape].variants[name], row.judged_at or target.shape
    reference = reference_of(study)
    beside = reference.name if reference else study.ladder.primary_reference
    times = tuple(times_of(evidence, name, beside))
    gates = require_kept(row, recorded, times)
    build, step = recorded.build, row.step
    assert build is not None  # it is kept
    assert step is not None
    timing = fullest_timing(evidence[decided_at], [name])
    modules: dict[str, tuple[str, dict[str, Parameter]]] = {"study": ("study", {})}
    for role, module in (("variant", variant), ("reference", reference)):
        if module:
            modules[role] = (base_name(module.name), dict(module.params))
    job = ShipJob(
        study=study.name,
        variant=name,
        modules=modules,
        checked=tuple(s for s, c in recorded.checks.items() if c.status == CheckResult.CORRECT),
        has_kernels=bool(build.kernels),
    )
    learned = packable(study, job)
    shipped = Shipped(
        date=now(),
        workbench=workbench.__version__,
        study=study.name,
        variant=name,
        key_change=step.key_change,
        fingerprint=Fingerprints(study).of_sources(name),
        judged_at=decided_at,
        verdict=Verdict.KEPT.label + (f" at {row.judged_at}" if row.judged_at else ""),
        gates=gates,
        commit=commit_of(target.workspace),
        environment=timing.timing.provenance if timing is not None else build.provenance,
        times=times,
        keeps=kept_between_calls(source_files(study, variant)),
    )
    function = re.sub(r"\W", "_", study.name)
    capability = re.sub(r"sm_(\d+)(\d)", r"\1.\2", build.arch)  # 9.0a of sm_90a
    facts: Facts = to_builtins(job) | to_builtins(learned)
    facts |= {
        "package": package.replace("-", "_"),
        "function": f"{function}_" if function in ("op", "cuda") else function,
        "keeps": shipped.keeps,
        "capabilities": [capability] if build.kernels else [],
        "definition": definition,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(".workbench-ship-", folder.parent) as scratch:
        made = scratch / folder.name
        has_licence = write(target, package, facts, shipped, learned, made)
        with alone(folder):
            require_room(folder)
            made.rename(folder.resolve())  # whole or not at all
    return Shipment(folder, shipped, facts["capabilities"], has_licence)


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
    states = dict(row.evidence_state)
    states |= {f"check at {shape}": state for shape, state in evidence.check_states.items()}
    stale = [kind for kind, state in states.items() if state == Status.STALE]
    if stale:
        raise GateFailed(
            f"the evidence of '{row.variant}' is stale: {', '.join(stale)} of other sources than "
            "there are now",
            hint=MEASURE,
        )
    gates = {gate.name: sentence(gate.why) for gate in row.gates}
    if row.verdict == Verdict.KEPT:
        return gates
    is_tried = row.step is not None and row.step.key_change.startswith("as given: ")
    if is_tried and times and all((time.low or 0) > 1 for time in times):
        fastest = max(times, key=lambda time: time.ratio or 0)
        return {"faster": f"{fastest.ratio:.3g}x of {fastest.reference} at {fastest.shape}"}
    label = row.verdict.label if row.verdict else NOT_JUDGED
    unpassed = [gate.name for gate in row.gates if gate.state != GateState.PASSED]
    failed = [gate.name for gate in row.gates if gate.state == GateState.FAILED]
    why = "".join(f": {name}: {gates[name]}" for name in [*failed, *unpassed][:1])
    raise GateFailed(f"'{row.variant}' is not kept ({label}){why}", hint=MEASURE)


def commit_of(workspace: Workspace) -> str:
    """The commit that the sources are of, "" where they are of none."""
    with suppress(WorkbenchError):
        repository = repository_of(workspace)
        return "" if repository.is_dirty else repository.commit("HEAD").sha
    return ""


def write(
    target: Target, name: str, facts: Facts, shipped: Shipped, learned: Packable, folder: Path
) -> bool:
    """Write the files. Returns whether a licence is among them."""
    study, package, kernels = target.study, facts["package"], learned.kernels
    top, built = f"torch-ext/{package}", "build/torch-cuda"
    python, sources = sources_of(study, [module for module, _ in facts["modules"].values()])
    licence, licence_text = licence_of(target.workspace.root)
    texts = {f"cuda/k{i:02}.cu": unit(i, kernel, study) for i, kernel in enumerate(kernels)}
    values = {
        "facts": facts,
        "shipped": shipped,
        "distribution": name,
        "study": study,
        "reference": reference_of(study),
        "needs": needed_by([text for file, text in python.items() if file != "study.py"]),
        "licence": licence,
        "units": list(texts),
        "flags": [f"-Xptxas={option}" for kernel in kernels[:1] for option in kernel.options],
    }
    texts |= {f"cuda/src/{file}": text for file, text in sources.items() if kernels}
    texts |= {f"{top}/sources/{file}": text for file, text in python.items()}
    texts |= {f"{top}/variant.json": json.dumps(facts, indent=1)}
    whole = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
    values["identity"] = f"_{package}_cuda_{whole[:7]}"
    environment = templates()
    for file in environment.list_templates():
        kind, _, path = file.removesuffix(".j2").partition("/")
        is_code = kind == "package" and "__pycache__" not in path  # which pip may have made
        if is_code and (kernels or not path.endswith((".h", ".cpp"))):
            texts[path.replace("PACKAGE", package)] = environment.get_template(file).render(values)
    # Ready to load where kernel-builder built nothing: kernels are compiled at the first import.
    for path in list(texts):
        if path.startswith((top, "cuda/")):
            texts[f"{built}/{path.removeprefix(f'{top}/')}"] = texts[path]
    if facts["definition"]:
        inside = {p.replace(built, package): t for p, t in texts.items() if p.startswith(built)}
        texts["solution.json"] = json.dumps(to_builtins(solution_of(inside, values)), indent=1)
    for path, text in texts.items():
        write_bytes(folder / path, text.encode(errors="replace"))
    if licence_text is not None:
        write_bytes(folder / "LICENSE", licence_text)
    for place in (top, built):
        store.write(folder / place / "provenance.json", shipped)
    return licence_text is not None


def sources_of(study: Study, modules: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The Python of the study that travels with some modules, and the files of its kernels."""
    paths = [path for module in modules for path in named_from(study.folder, f"{module}.py")]
    texts = {path.relative_to(study.folder).as_posix(): read_text(path) for path in paths}
    python = {name: moved(name, text) for name, text in texts.items() if name.endswith(".py")}
    return python, {name: text for name, text in texts.items() if name not in python}


def moved(name: str, text: str) -> str:
    """Import from the package's ``cuda`` what a file imports of the workbench. Raises UsageError
    for more than that module has.
    """
    nodes = ast.walk(ast.parse(text))
    imports = [ast.unparse(n) for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
    refused = [s for s in imports if re.match(r"\w+ workbench\b", s) and not PORTABLE.fullmatch(s)]
    if "from workbench.problems import given" in imports:
        used = re.findall(r"\bgiven\.(\w+)", text)
        refused += [f"given.{function}" for function in used if function not in GIVEN]
    if refused:
        raise UsageError(
            f"{name} has '{refused[0]}', and that part of the workbench does not travel",
            hint="what does: from workbench import cuda, Shape, Tolerance, Work; and of `try`, "
            "a Python function with inputs() or --input",
        )
    return re.sub(r"(?m)^(\s*)from workbench(\.\w+)? import", r"\1from ..cuda import", text)


def unit(index: int, kernel: ShippedKernel, study: Study) -> str:
    """A source that compiles a kernel with its macros, and exports it. Kernels of one file are
    compiled several times, so their names are made different.
    """
    names = set(_KERNEL.findall(expand_includes(study.folder / kernel.source)))
    macros = kernel.defines | {name: f"k{index:02}_{name}" for name in sorted(names)}
    defined = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    source = f'#include "launch.h"\n\n{defined}#include "src/{kernel.source}"\n'
    return f"{source}\nWORKBENCH_KERNEL({kernel.symbol}, {kernel.name})\n"


def licence_of(root: Path) -> tuple[str, bytes | None]:
    """What a workspace's ``pyproject.toml`` calls the licence ("" for nothing), and its text."""
    name: object = ""
    with suppress(OSError, WorkbenchError):
        project = read_toml(root / "pyproject.toml").get("project")
        name = project.get("license") if isinstance(project, dict) else ""
    paths = [root / file for file in ("LICENSE", "LICENSE.txt", "LICENSE.md", "COPYING")]
    text = next((path.read_bytes() for path in paths if path.is_file()), None)
    return name if isinstance(name, str) else "", text


def solution_of(texts: Mapping[str, str], values: Facts) -> Solution:
    """The built package as a Python solution of FlashInfer-Bench, whose CUDA C++ TVM FFI builds."""
    facts, inside = values["facts"], values["facts"]["package"]
    names = ", ".join(name for name, _ in facts["arguments"])
    main = f"from .{inside} import op\n\n\ndef run({names}):\n"
    sources = {"main.py": f"{main}    return op.run({names})\n", **texts}
    if facts["kernels"]:
        for file, place in (("_ops.py.j2", "_ops.py"), ("binding.cu", "cuda/binding.cu")):
            template = templates().get_template(f"solution/{file}")
            sources[f"{inside}/{place}"] = template.render(values)
    return Solution(
        name=values["distribution"],
        definition=facts["definition"],
        author="workbench",
        spec=BuildSpec(
            entry_point="main.py::run",
            language="triton" if "triton" in values["needs"] else "python",
            binding="tvm-ffi" if facts["kernels"] else None,
            destination_passing_style=False,
            target_hardware=(values["shipped"].environment.gpu,),
            dependencies=tuple(values["needs"]),
        ),
        sources=tuple(SourceFile(path, text) for path, text in sources.items()),
    )


def lines(result: Shipment) -> list[str]:
    shipped = result.shipped
    said = [f"shipped {shipped.variant} of {shipped.study}, {shipped.verdict}"]
    time = next((t for t in shipped.times if t.shape == shipped.judged_at and t.ratio), None)
    if time is not None:
        said.append(f"  {time.ratio:.3g}x of {time.reference} at {time.shape}, recorded")
    if result.capabilities:
        capability = result.capabilities[0]
        said.append(f"  nvcc compiles it for compute capability {capability} at the first import")
    if shipped.keeps:
        said.append(
            "  one copy of its module per stream, because it may keep state from call to "
            f"call: {'; '.join(shipped.keeps)}"
        )
    if not result.has_licence:
        said.append("  no licence was found in the workspace: nobody may use it without one")
    return said
