"""The folder in which a worker runs, with a copy of what it needs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
def scratch_folder(study: Study) -> Iterator[Path]:
    """With a copy of the study's sources."""
    with empty_scratch() as scratch:
        shutil.copytree(
            study.folder,
            scratch / "kernels" / study.name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        yield scratch
