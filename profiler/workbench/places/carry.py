"""Sources by the sha256 of their content: named here, kept and laid out there."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from workbench.errors import ToolFailed
from workbench.evidence import store
from workbench.study.model import Study
from workbench.study.workspace import CONFIG_FILE


def files_of(study: Study) -> dict[str, Path]:
    """A study's own files and its ladder, by the path that they have in a workspace."""
    found = {
        f"kernels/{study.name}/{path.relative_to(study.folder).as_posix()}": path
        for path in sorted(study.folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return {**found, f"ablations/{study.name}/ablation.toml": study.ladder.path}


def hashes(files: Mapping[str, Path]) -> dict[str, str]:
    """Raises EnvironmentLacks for one that cannot be read."""
    return {name: store.digest_of(path) for name, path in files.items()}


@dataclass(frozen=True)
class Store:
    """A folder with a file for each content, called after its sha256."""

    folder: Path

    def path(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256

    def lacks(self, wanted: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({one for one in wanted if not self.path(one).is_file()}))

    def put(self, blobs: Mapping[str, bytes]) -> None:
        """Raises ToolFailed for content that is not of its hash."""
        for sha256, data in blobs.items():
            _require(sha256, data)
            path = self.path(sha256)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{sha256}.{os.getpid()}.{threading.get_ident()}")
            part.write_bytes(data)
            part.replace(path)

    def lay_out(self, sources: Mapping[str, str], root: Path) -> None:
        """A workspace in ``root`` with these files. Raises ToolFailed for one that has changed."""
        root.mkdir(parents=True, exist_ok=True)
        (root / CONFIG_FILE).write_text("")  # what decides travels with the block
        for name, sha256 in sources.items():
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts:
                raise ToolFailed(f"a source is called {name!r}: no path in a workspace")
            data = self.path(sha256).read_bytes()
            try:
                _require(sha256, data)
            except ToolFailed:
                self.path(sha256).unlink(missing_ok=True)  # it is sent again with the next try
                raise
            target = root / parts
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def _require(sha256: str, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ToolFailed(
            f"the content that came as {sha256[:12]} is other content",
            hint="run the same command again: what was finished is kept",
        )
