"""The folder in which a worker runs, with a copy of what it needs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.cuda.build import CUBINS
from workbench.evidence.store import disk_full
from workbench.study.model import Study


@contextmanager
def empty_scratch() -> Iterator[Path]:
    """Gone afterwards. Raises EnvironmentLacks where the disk is full."""
    scratch = Path(tempfile.mkdtemp(prefix="workbench-"))
    try:
        yield scratch
    except OSError as error:
        raise disk_full(scratch, error) or error from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def scratch_folder(study: Study, cubins: Path | None = None) -> Iterator[Path]:
    """With a copy of the study's sources. What is compiled in it is kept in ``cubins``, and taken
    from there: one command may measure several times.
    """
    with empty_scratch() as scratch:
        if cubins is not None:
            _copy_cubins(cubins, scratch)
        shutil.copytree(
            study.folder,
            scratch / "kernels" / study.name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        yield scratch
        if cubins is not None:
            _copy_cubins(scratch, cubins)


def _copy_cubins(before: Path, after: Path) -> None:
    for path in before.glob(CUBINS):
        shutil.copy(path, after)
