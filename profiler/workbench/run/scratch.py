"""The folder in which a worker runs: copies of what it needs, and what front ends keep in it."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from workbench.cuda.compiler import CUBINS
from workbench.evidence.store import disk_full
from workbench.study.model import Study


@contextmanager
def empty_scratch(prefix: str = "workbench-") -> Iterator[Path]:
    """Gone afterwards. Raises EnvironmentLacks where the disk is full."""
    scratch = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield scratch
    except OSError as error:
        raise disk_full(scratch, error) or error from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def scratch_folder(
    study: Study, cubins: Path | None = None, *, extensions: bool = False
) -> Iterator[Path]:
    """With a copy of the study's sources. What is compiled in it is kept in ``cubins``, and taken
    from there: one command may measure several times. So are torch's ``extensions`` where nobody
    else builds any there meanwhile.
    """
    with empty_scratch() as scratch:
        if cubins is not None:
            _copy_cubins(cubins, scratch)
            if extensions:
                _share_extensions(cubins / EXTENSIONS, scratch / EXTENSIONS)
                _copy_sources(study, cubins)
        _copy_sources(study, scratch)
        yield scratch
        if cubins is not None:
            _copy_cubins(scratch, cubins)


def _copy_sources(study: Study, folder: Path) -> None:
    """With the times of the files, by which ninja knows what it has built."""
    shutil.copytree(
        study.folder,
        folder / "kernels" / study.name,
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )


def _share_extensions(kept: Path, there: Path) -> None:
    """Without the locks that a process has left behind which was ended while it built."""
    kept.mkdir(exist_ok=True)
    for lock in kept.glob("*/lock"):
        lock.unlink()
    there.symlink_to(kept.resolve(), target_is_directory=True)


def _copy_cubins(before: Path, after: Path) -> None:
    """Each whole or not at all: another command may use the same folder."""
    for path in before.glob(CUBINS):
        target = after / path.name
        if not target.exists():
            part = target.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
            shutil.copy(path, part)
            part.replace(target)


# Variables that name a folder, and the folder below the measurement's own. Its workers share what
# is built there: what was checked is what is timed and profiled, and an autotuner chooses once.
# They are no earlier run's, since what is kept there has the paths of the sources of that run.
EXTENSIONS_DIR, EXTENSIONS = "TORCH_EXTENSIONS_DIR", "extensions"  # may be shared: ``scratch``
FOLDERS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    EXTENSIONS_DIR: EXTENSIONS,
    "CUTE_DSL_CACHE_DIR": "cute",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
    "TILELANG_CACHE_DIR": "tilelang",
    "CUDA_TILE_CACHE_DIR": "cutile",
    "HELION_CACHE_DIR": "helion",
}
SETTINGS = {
    "TRITON_DISABLE_LINE_INFO": "0",
    "TRITON_CACHE_AUTOTUNING": "1",
    "CUTE_DSL_LINEINFO": "1",
    "CUPY_CACHE_SAVE_CUDA_SOURCE": "1",
}
NVCC_FLAGS = "NVCC_APPEND_FLAGS"


def compiler_environment(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Beside what is ``given``: nvcc has line information after the user's own flags. Folders are
    those that links lead to: an extension is built anew where its path is another.
    """
    flags = f"{given.get(NVCC_FLAGS, '')} -lineinfo".strip()
    folders = {name: str((folder / below).resolve()) for name, below in FOLDERS.items()}
    return {**folders, **SETTINGS, NVCC_FLAGS: flags}
