"""The sources of a study in a worker: the study and its variants are loaded, each time anew, which
files their code opens is heard, and all stay as they are.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from workbench.study.params import made_shapes
from workbench.study.sources import CODE
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
        study.shapes.update(made_shapes(self.job.derived))
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


class KeptSources:
    """The files of a study's ``folder`` as they are now. No process may meet other ones than those
    that the fingerprints are of, so that whoever forks puts them back first.
    """

    def __init__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if path.suffix in CODE)
        self.contents = {path: path.read_bytes() for path in paths if path.is_file()}

    def put_back(self) -> None:
        for folder in {path.parent for path in self.contents}:
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)  # Python would believe it
        for path, content in self.contents.items():
            if not path.is_file() or path.read_bytes() != content:
                path.unlink(missing_ok=True)
                path.write_bytes(content)


class Opened:
    """Hears of every file that Python opens below some folders: the copy of the study's sources
    that a worker has, and the workspace that it was made from.

    An audit hook can never be taken away again, by the code that it watches neither. Files that
    native code opens are not heard of.
    """

    def __init__(self, *folders: Path) -> None:
        self._folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._seen: dict[str, None] | None = None
        sys.addaudithook(self._hear)

    @contextmanager
    def require_covered(self, study: Path, names: Sequence[str]) -> Iterator[None]:
        """Raises UsageError at the end for what is opened inside and is neither of these sources of
        a variant nor ``study.py``.
        """
        seen: dict[str, None] = {}
        self._seen = seen
        try:
            yield
        finally:
            self._seen = None
        covered = {os.path.realpath(study / name) for name in (*names, "study.py")}
        if others := [path for path in seen if path not in covered]:
            name = os.path.relpath(others[0], os.path.realpath(study))
            raise UsageError(
                f"opens {name}, which its fingerprint does not cover: a change of it would pass "
                "unseen",
                hint="name the file in a plain string of the module",
            )

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self._seen is None:
            return
        path = arguments[0]
        if isinstance(path, str | bytes | os.PathLike):
            name = os.path.realpath(os.fsdecode(path))
            if name.startswith(self._folders) and "__pycache__" not in Path(name).parts:
                self._seen[name] = None
