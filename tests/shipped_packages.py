"""Packages for tests: handmade ones whose variant is torch on the CPU, and how one is run alone."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from answers import Patch
from workbench.cuda import cubin_folder
from workbench.run import side_jobs
from workbench.run.protocol import Packable
from workbench.shipped import facts, op
from workbench.shipped.dispatch import Instances
from workbench.shipped.facts import ONE, TENSOR, Domain, Facts, Given, given_of, inferred
from workbench.shipped.op import Operator

_numbers = itertools.count()


def handmade(
    root: Path,
    monkeypatch: Patch,
    *,
    run: str,
    reference: str,
    calls: Sequence[dict[str, Any]],
    study: str = "",
    outputs: tuple[str, ...] = ("",),
    returns: str = ONE,
    in_place: tuple[str, ...] = (),
    keeps: tuple[str, ...] = (),
    on_gpu: bool = True,
) -> Operator:
    """The operator of a package whose variant and reference are these modules.

    ``calls`` are the inputs that it was checked with. ``on_gpu`` takes the CPU for one.
    """
    name = f"handmade_{next(_numbers)}"
    top = root / name
    sources = top / "kernels" / "thing"
    sources.mkdir(parents=True)
    for folder in (top, top / "kernels", sources):
        (folder / "__init__.py").write_text("")
    (sources / "fast.py").write_text(run)
    (sources / "plain.py").write_text(reference)
    (sources / "study.py").write_text(study)
    arguments = tuple((n, kind_of(value)) for n, value in calls[0].items())
    facts.write(
        top / facts.FILE,
        Facts(
            package=name,
            function="thing",
            study="thing",
            variant="fast",
            module="fast",
            params={},
            arguments=arguments,
            outputs=outputs,
            returns=returns,
            in_place=in_place,
            reference="plain" if reference else "",
            reference_params={},
            keeps=keeps,
            checked=("large",),
            refused=(),
            default_shape="large",
            domain=domain_of(calls),
        ),
    )
    monkeypatch.syspath_prepend(root)
    monkeypatch.setattr(cubin_folder, "_folder", None)
    if on_gpu:
        monkeypatch.setattr(op, "elsewhere", lambda tensors: "")
        monkeypatch.setattr(op, "on_device", lambda device: nullcontext())
        monkeypatch.setattr(Instances, "_key", lambda self, device: (0,))
    return Operator(name, top)


def kind_of(value: Any) -> str:
    return TENSOR if isinstance(value, torch.Tensor) else type(value).__name__


def domain_of(calls: Sequence[dict[str, Any]]) -> Domain:
    names = [n for n, value in calls[0].items() if isinstance(value, torch.Tensor)]
    given: list[list[Given]] = [[given_of(call[n]) for n in names] for call in calls]
    values = [{n: v for n, v in call.items() if n not in names} for call in calls]
    return inferred(names, list(zip(given, values, strict=True)))


def alone(
    *arguments: str, path: Sequence[Path], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Python with these folders on its path, in which the workbench cannot be imported."""
    blocked = path[0] / "blocked"
    blocked.mkdir(exist_ok=True)
    (blocked / "sitecustomize.py").write_text("import sys\nsys.modules['workbench'] = None\n")
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (blocked, *path))),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def without_cubins(study: Any, variant: Any, reference: Any, archs: Any, *rest: Any) -> Packable:
    """Compiling fifty kernels is tested elsewhere."""
    return side_jobs.packable(study, variant, reference, (), *rest)
