"""Runs on a host that ssh reached, with its Python alone: unpacks the workbench that comes on stdin
into the user's cache, finds or makes an environment for it, and becomes a worker.

``ssh`` sends the text of this file, and a call of ``main`` below it.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

KEPT_SECONDS = 7 * 86400.0  # for which other versions stay
SAID = "workbench: "  # before what the user is to read
NO_PACKAGES = 98  # exit code where pip fails


def main(size: int, requirements: list[str]) -> None:
    """``size`` of the workbench's zip in bytes; ``requirements`` as pip takes them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = cache / "workbench" / "remote"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    code = unpacked(root, received(size))
    lacking = missing(requirements)
    python = environment(root, requirements, lacking) if lacking else sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")])
    os.execv(python, [python, "-P", "-m", "workbench.remote.worker"])


def received(size: int) -> bytes:
    """Without a buffer: the worker reads the job that comes behind."""
    data = b""
    while len(data) < size and (more := os.read(0, size - len(data))):
        data += more
    return data


def unpacked(root: Path, data: bytes) -> Path:
    """Whole or not at all, as several may come at once; those that are no longer used go."""
    folder = root / f"code-{hashlib.sha256(data).hexdigest()[:16]}"
    if not folder.is_dir():
        part = tempfile.mkdtemp(dir=root)
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            packed.extractall(part)
        with contextlib.suppress(OSError):
            Path(part).rename(folder)
    os.utime(folder)
    for other in root.glob("code-*"):
        if other.stat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def missing(requirements: list[str]) -> list[str]:
    """Requirements that this Python does not meet; without pip only those of which it has none."""
    found = []
    for text in requirements:
        try:
            from pip._vendor.packaging.requirements import Requirement

            wanted = Requirement(text)
            name, allowed = wanted.name, wanted.specifier
        except ImportError:
            name, allowed = text.partition(">")[0].partition("=")[0], None
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found.append(text)
        else:
            if allowed is not None and not allowed.contains(version, prereleases=True):
                found.append(text)
    return found


def environment(root: Path, requirements: list[str], lacking: list[str]) -> str:
    """The Python of one with the requirements, on top of the packages that are there already. What
    stops half-way is deleted, at the latest by the next one.
    """
    text = repr((sys.version, sys.executable, requirements))
    folder = root / f"venv-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    python, done = str(folder / "bin" / "python"), folder / "complete"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return python
        if folder.exists():
            say(f"deleting {folder}, which an earlier installation left half-way")
            shutil.rmtree(folder)
        say(f"installing {', '.join(lacking)} into {folder}; delete it to undo that")
        try:
            venv.create(folder, with_pip=True)
            paths = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
            (own,) = folder.glob("lib/python*/site-packages")
            (own / "inherited.pth").write_text("\n".join(paths))
            command = [python, "-m", "pip", "install", "-q", *requirements]
            if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode:
                sys.exit(NO_PACKAGES)
            done.touch()
        finally:
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                say(f"the installation failed; {folder} is deleted again")
    return python


def say(text: str) -> None:
    print(f"{SAID}{text}", file=sys.stderr, flush=True)
