"""``doctor``: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.cli.options import DoctorOptions
from workbench.cli.progress import telling
from workbench.cli.streams import show
from workbench.cuda.compiler import package_version
from workbench.cuda.programs import header_folders
from workbench.errors import EnvironmentLacks
from workbench.ncu.command import known_error
from workbench.render import doc
from workbench.run import machine
from workbench.run.machine import look, nvidia_smi, why_none
from workbench.words import INSTALL, grouped

OK, WARN, FAIL = "ok", "warn", "fail"
MIN_FREE_GB = 2.0
NO_NCU = "`conda install nvidia::nsight-compute`, NVIDIA's apt package, or its folder on PATH"


@dataclass(frozen=True)
class DoctorRow:
    """One thing that ``doctor`` looked at; ``needed_for`` is read, build or measure."""

    name: str
    result: str
    found: str
    fix: str
    needed_for: str


@dataclass(frozen=True)
class Diagnosis:
    """``works`` has read, build and measure."""

    rows: tuple[DoctorRow, ...]
    works: dict[str, bool]
    conclusion: str


def run(options: DoctorOptions) -> int:
    """Exit code 3 where nothing can be read."""
    with telling("waiting for the tests of ncu, compiler and GPU"):
        rows = tuple(all_rows())
    can = works(rows)
    says = {
        "read": "profile, ablate, report and show on recorded evidence",
        "build": "build",
        "measure": "check, timing and profiling on a GPU",
    }
    yes, no = ([says[k] for k, good in can.items() if good is each] for each in (True, False))
    conclusion = f"works here: {'; '.join(yes) or 'nothing'}"
    conclusion += f". Will not work: {'; '.join(no)}" if no else ""
    show(options, Diagnosis(rows, can, conclusion))
    return 0 if can["read"] else EnvironmentLacks.exit_code


def works(rows: Sequence[DoctorRow]) -> dict[str, bool]:
    """Return what works here: reading evidence, building, measuring (which needs the other two)."""
    failed = {row.needed_for for row in rows if row.result == FAIL}
    read = "read" not in failed
    build = read and "build" not in failed
    return {"read": read, "build": build, "measure": build and "measure" not in failed}


def all_rows() -> Iterator[DoctorRow]:
    yield row("Python", True, platform.python_version(), "", "read")  # an older one imports nothing
    yield package_row("ncu-report", "read", "pip install ncu-report")
    yield package_row("msgspec", "read", "pip install msgspec")
    yield package_row("torch", "build")
    yield package_row("cuda-core", "build", label="NVRTC (cuda-core)")
    headers = next(iter(header_folders()), "")
    yield row("CUDA headers", bool(headers), headers or "missing", INSTALL, "build")
    yield package_row("zstandard", "measure")
    yield gpu_row()
    yield driver_row()
    yield ncu_row()
    free = min(shutil.disk_usage(p).free for p in (Path.cwd(), Path(tempfile.gettempdir()))) / 1e9
    fix = f"free {MIN_FREE_GB:g} GB or more"
    yield row("disk", free >= MIN_FREE_GB, f"{free:.0f} GB free", fix, bad=WARN)
    yield slices_row()
    if package_version("msgspec"):
        from workbench.run.self_test import KERNEL_STEPS, outcomes

        gpu = machine.find_gpu()
        arch = gpu.arch if gpu and gpu.compute_capability else "sm_80"
        for ran in outcomes(machine.find_ncu(), arch, has_gpu=gpu is not None):
            needed = "build" if ran.step == KERNEL_STEPS[0] else "measure"
            yield row(ran.step, not ran.error, ran.error or ran.found, ran.hint, needed)


def row(
    name: str, good: bool, found: str, fix: str, needed_for: str = "measure", bad: str = FAIL
) -> DoctorRow:
    """``fix`` is what helps where it is not good, which is as ``bad`` as that."""
    return DoctorRow(name, OK if good else bad, found, "" if good else fix, needed_for)


def package_row(name: str, needed_for: str, fix: str = INSTALL, *, label: str = "") -> DoctorRow:
    version = package_version(name)
    return row(label or name, bool(version), version or "missing", fix, needed_for)


def gpu_row() -> DoctorRow:
    gpu = machine.find_gpu()
    if gpu is None:
        why = f"no GPU can be used ({why_none()})"
        return row("GPU", False, "none", f"{why}; `--on HOST` measures on another machine")
    capability = gpu.compute_capability or "unknown"
    lost = look().lost
    facts = ", ".join(filter(None, (gpu.full_name, f"compute capability {capability}", gpu.uuid)))
    text = "; ".join([facts, *lost])
    return row("GPU", not lost, text, "reset or reboot what was lost; the others work", bad=WARN)


def driver_row() -> DoctorRow:
    version, error = look().driver, look().error
    entry = known_error(f"{error} {nvidia_smi()}") if error else None
    fix = f"{entry.means}: {entry.hint}" if entry else "install it, until `nvidia-smi` works"
    return row("driver", bool(version), version or "none", fix)


def ncu_row() -> DoctorRow:
    path = machine.find_ncu()
    if path is None:
        return row("ncu", False, "not found", NO_NCU)
    version = machine.ncu_version(path)
    text = f"{version or 'does not run'} ({path})"
    return row("ncu", bool(version), text, f"run {path} --version to see why")


def slices_row() -> DoctorRow:
    divided = any(gpu.profile for gpu in look().gpus)
    state = "on: a GPU is divided into slices" if divided else "off"
    fix = (
        "a slice shares power and clocks with its neighbours, and ncu has fewer counters of it; "
        "`nvidia-smi -mig 0` (root) makes them one GPU"
    )
    return row("MIG", not divided, state, fix, bad=WARN)


def brief(result: Diagnosis) -> dict[str, object]:
    """Return what works, and each row that does not with its way out."""
    from workbench.render.in_short import (
        command,
        short,  # reads records: not without msgspec
    )

    return {
        "works": dict(result.works),
        "conclusion": result.conclusion,
        "problems": [
            {"name": each.name, "result": each.result, "found": short(each.found), "fix": each.fix}
            for each in result.rows
            if each.fix
        ],
        **command("", "list"),
    }


FINDINGS: list[doc.Field[DoctorRow]] = [
    doc.Field("result", "", lambda f: f"[{f.result}]"),
    doc.Field("name", "what", lambda f: f.name),
    doc.Field("found", "found", lambda f: f.found, rank=1),
]


def blocks(result: Diagnosis, _: object) -> list[doc.Block]:
    """Return what there is, what works with it, and how to get what is missing."""
    shown: list[doc.Block] = [
        doc.table("findings", FINDINGS, result.rows, key=lambda f: f.name),
        doc.paragraph(result.conclusion),
    ]
    fixes = grouped((f.fix, f.name) for f in result.rows if f.fix)
    helps = [
        doc.line(doc.strong(", ".join(names)), ": ", doc.authored(fix))
        for fix, names in fixes.items()
    ]
    if helps:
        shown[1:1] = [doc.paragraph("What would help, first things first:"), doc.bullets(helps)]
    return shown
