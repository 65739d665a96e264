"""Runs on a host before anything of the workbench is there: nothing but the standard library.

Its text is sent over SSH to a Python on that host, which executes it with one request, as JSON, and
behind it on stdin the files to store, as a tar. The last line on stdout is the answer. All that it
writes lies in one folder, which has a marker; a folder without it is never written to or removed.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ANSWER = "workbench answers "  # before the answer: what logs in may print lines of its own
MARKER = "place.json"
MIN_FREE = 500_000_000  # bytes; the wheels of torch take ten times as much
BEAT_SECONDS = 5.0
OUT_OF_SPACE = "No space left on device"
UNREACHABLE = (
    "No matching distribution",
    "Could not find a version",
    "ConnectionError",
    "NewConnectionError",
    "Temporary failure in name resolution",
    "timed out",
)


class Refused(Exception):
    """``kind`` is what the other side makes of it; see ``installing``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def environment(folder: Path) -> dict[str, str]:
    """What all that runs there for the workbench is given: what it leaves stays in the folder."""
    return {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "WORKBENCH_PLACE": str(folder / "work"),  # see run/cards.py
        "XDG_CACHE_HOME": str(folder / "home" / ".cache"),
        "XDG_CONFIG_HOME": str(folder / "home" / ".config"),
        "PYTHONPYCACHEPREFIX": str(folder / "home" / "pyc"),
    }


def main(request: Mapping[str, Any]) -> dict[str, Any]:
    folder = Path.home() / Path(request["folder"]).expanduser()
    try:
        match request["do"]:
            case "look":
                return look(folder)
            case "prepare":
                return prepare(folder, request)
            case "install":
                return install(folder, request)
            case "remove":
                return remove(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused("full", f"the disk of {folder} is full") from error
        raise Refused("denied", f"{error.filename or folder}: {error.strerror}") from error
    raise ValueError(request["do"])


def look(folder: Path) -> dict[str, Any]:
    """What is there, without a change."""
    above = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return {
        "folder": str(folder),
        "python": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "machine": os.uname().machine,
        "free": shutil.disk_usage(above).free,
        "marker": marker(folder),
    }


def marker(folder: Path) -> dict[str, Any] | None:
    """None where there is no such folder yet, or an empty one."""
    try:
        found: dict[str, Any] = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return found
    except FileNotFoundError:
        if folder.exists() and any(folder.iterdir()):
            raise Refused("foreign", f"{folder} is there, and not a folder of setup's") from None
        return None
    except (NotADirectoryError, ValueError):
        raise Refused("foreign", f"{folder} is no folder of setup's") from None


def mark(folder: Path, found: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    half = folder / f"{MARKER}.half"
    half.write_text(json.dumps(found), encoding="utf-8")
    half.replace(folder / MARKER)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """While nothing measures from this folder. Raises Refused where something does."""
    with (folder / "running").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("busy", f"something is measured from {folder} just now") from None
        yield


def prepare(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """The folder, with a virtual environment that has the workbench alone. ``inherit`` lets it see
    the packages of this Python.
    """
    known = marker(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if known is None:
        mark(folder, {"complete": False})
    if (free := shutil.disk_usage(folder).free) < MIN_FREE:
        raise Refused("full", f"the disk of {folder} has {free / 1e6:.0f} MB left")
    with alone(folder):
        for name in ("wheels", "venv"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in ("home", "tmp", "work", "wheels"):
            (folder / name).mkdir(exist_ok=True)
        unpack(folder / "wheels")
        make_venv(folder, inherit=request["inherit"])
        wheel = folder / "wheels" / request["wheel"]
        pip(folder, "--no-index", "--no-deps", "--force-reinstall", str(wheel))
    return look(folder)


def unpack(folder: Path) -> None:
    """The tar on stdin: plain files, none of them outside of ``folder``."""
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as sent:
        for member in sent:
            source = sent.extractfile(member)
            if source is None or Path(member.name).name != member.name:
                raise Refused("damaged", f"'{member.name}' is no plain file")
            with (folder / member.name).open("wb") as out:
                shutil.copyfileobj(source, out)


def make_venv(folder: Path, *, inherit: bool) -> None:
    """With a pip of its own only where this Python has none to lend. Raises Refused where it can
    make neither: Debian's has no ensurepip.
    """
    lent = lends_pip()
    if importlib.util.find_spec("venv") is None or not (
        lent or importlib.util.find_spec("ensurepip")
    ):
        raise Refused("no venv", f"{sys.executable} has neither ensurepip nor a pip since 22.3")
    without = ["--without-pip"] if lent else []
    run(folder, [sys.executable, "-m", "venv", "--clear", *without, str(folder / "venv")])
    if inherit:
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        seen = [*site.getsitepackages(), site.getusersitepackages()]
        (packages / "inherited.pth").write_text("\n".join(p for p in seen if Path(p).is_dir()))


def lends_pip() -> bool:
    """Whether this Python's own pip installs into other environments."""
    try:
        first, second, *_ = importlib.metadata.version("pip").split(".")
        return (int(first), int(second)) >= (22, 3)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


def install(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """The requirements, from an index or from the wheels that were carried alone."""
    wheels = folder / "wheels"
    unpack(wheels)
    where = ["--no-index", "--find-links", str(wheels)] if request["offline"] else ["--retries=2"]
    wanted = [f"{wheels / request['wheel']}[{request['extras']}]", *request["requirements"]]
    with alone(folder):
        pip(folder, *where, *wanted)
        shutil.rmtree(wheels)
        mark(folder, {"complete": True, **request["marker"]})
    return look(folder)


def pip(folder: Path, *arguments: str) -> None:
    python = str(folder / "venv" / "bin" / "python")
    tool = (
        [sys.executable, "-m", "pip", "--python", python] if lends_pip() else [python, "-m", "pip"]
    )
    flags = ["--no-input", "--no-cache-dir", "--no-compile", "--disable-pip-version-check"]
    run(folder, [*tool, "install", *flags, *arguments])


def run(folder: Path, command: list[str]) -> None:
    """Its output goes to stderr line by line. Raises Refused where it fails."""
    own = {**os.environ, **environment(folder)}
    for name in ("HOME", "XDG_CONFIG_HOME"):  # where pip may be told of an index
        own[name] = os.environ.get(name, "")
    said = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own,
        stdin=subprocess.DEVNULL,
    ) as started:  # fmt: skip
        assert started.stdout is not None
        threading.Thread(target=end_if_nobody_hears, args=(started,), daemon=True).start()
        for line in started.stdout:
            said.append(line)
            with suppress(OSError):
                print(line, end="", file=sys.stderr, flush=True)
    if started.returncode == 0:
        return
    text = "".join(said)
    last = text.strip().splitlines()[-5:]
    if OUT_OF_SPACE in text:
        raise Refused("full", f"the disk of {folder} is full")
    kind = "unreachable" if any(word in text for word in UNREACHABLE) else "failed"
    raise Refused(kind, "\n".join(last) or f"{command[0]} failed")


def end_if_nobody_hears(started: subprocess.Popen[str]) -> None:
    """Whoever asked for it may be gone, and the connection with him."""
    while True:
        time.sleep(BEAT_SECONDS)
        if started.poll() is not None:
            return
        try:
            print(file=sys.stderr, flush=True)
        except OSError:
            started.kill()


def remove(folder: Path) -> dict[str, Any]:
    """All of it; ``removed`` says whether there was anything."""
    found = marker(folder)
    if found is None:
        return {"removed": False}
    with alone(folder):
        shutil.rmtree(folder)
    return {"removed": True}


if __name__ == "__main__":
    try:
        answer = main(json.loads(sys.argv[1]))
    except Refused as refused:
        answer = {"refused": refused.kind, "message": str(refused)}
    print(ANSWER + json.dumps(answer), flush=True)
