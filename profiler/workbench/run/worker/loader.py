"""Loads the study of a job and its variants in a worker, each time anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from workbench import cuda
from workbench.errors import UsageError
from workbench.ncu.command import variant_module
from workbench.run.protocol import SessionsJob, VariantsJob
from workbench.run.worker.lines import prepare
from workbench.study.front_ends import front_ends_of
from workbench.study.model import base_name
from workbench.study.params import add_shapes
from workbench.study.workspace import check_study_module, load_module


class Loader:
    """Loads modules from ``folder``, the worker's copy of the sources if none is named. ``plain``:
    without torch, and the settings that modules make are not kept apart.
    """

    def __init__(
        self, job: VariantsJob | SessionsJob, folder: Path | None = None, *, plain: bool = False
    ) -> None:
        self.job, self.plain = job, plain
        self.folder = folder or Path.cwd() / "kernels" / job.study
        self.loaded = 0
        self.declared: list[cuda.Kernel] = []  # by the variant that was loaded last

    def module(self, file: str, name: str) -> ModuleType:
        if self.plain:
            return load_module(self.folder / file, name)
        from workbench.run.worker.process_settings import load_kept

        return load_kept(self.folder / file, name)

    def study(self) -> ModuleType:
        """Load ``study.py``, and add the shapes that it does not list."""
        path = self.folder / "study.py"
        prepare(path)  # it may load what variants are made of
        study = self.module(path.name, "workbench_study")
        check_study_module(path, study)
        add_shapes(study.shapes, self.job.derived)
        return study

    def load(self, variant: str) -> Callable[..., Any]:
        """Return the variant's ``run``, of a module loaded anew that nothing has touched."""
        self.loaded += 1
        file = f"{base_name(variant)}.py"
        cuda.take_declared()
        with cuda.overridden(self.job.params.get(variant, {})):
            module = self.module(file, variant_module(self.loaded, variant))
        self.declared = cuda.take_declared()
        if not callable(run := getattr(module, "run", None)):
            hint = "a variant is a module with run(...)"
            raise UsageError(f"{file} defines no run()", hint=hint)
        return cast(Callable[..., Any], run)

    def files(self, variant: str) -> list[Path]:
        """The sources of a variant, those that its fingerprint covers."""
        names = self.job.sources.get(variant) or (f"{base_name(variant)}.py",)
        return [path for path in (self.folder / name for name in names) if path.is_file()]

    def has_extension(self, variant: str) -> bool:
        """Whether nvcc compiles an extension of torch for it."""
        return "nvcc" in front_ends_of(self.files(variant))
