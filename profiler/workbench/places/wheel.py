"""The workbench that runs here, as a wheel to be carried elsewhere."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import ToolFailed
from workbench.study.workspace import packaged_content

DISTRIBUTION = "kernel-workbench"
OF_THIS_INSTALLATION = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
WHENEVER = (1980, 1, 1, 0, 0, 0)  # so that the same content is the same file


def build_wheel(folder: Path) -> Path:
    """Into ``folder``: from the checkout where this runs in one, else from what is installed.

    Raises ToolFailed where the checkout cannot be built.
    """
    content = packaged_content()
    return repacked(folder) if content.name == "_content" else built(content, folder)


def built(checkout: Path, folder: Path) -> Path:
    """With the build backend of this Python where it has one; pip fetches it otherwise."""
    here = ["--no-build-isolation"] if find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *here, "-w", str(folder)]
    done = subprocess.run([*command, str(checkout)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-3:]
        raise ToolFailed(
            f"no wheel could be built of {checkout}: {' '.join(last)}",
            hint="`pip install hatchling` where there is no network",
        )
    (wheel,) = folder.glob("*.whl")
    return wheel


def repacked(folder: Path) -> Path:
    """The files of the installed distribution: what pip unpacked, packed again."""
    found = metadata.distribution(DISTRIBUTION)
    wheel = folder / f"{DISTRIBUTION.replace('-', '_')}-{found.version}-py3-none-any.whl"
    record, rows = "", list[tuple[str, str, str]]()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(found.files or (), key=str):
            name, path = file.as_posix(), Path(str(file.locate()))
            is_info = file.parts[0].endswith(".dist-info")
            if is_info and file.name == "RECORD":
                record = name
            if ".." in file.parts or file.suffix == ".pyc" or not path.is_file():
                continue
            if not (is_info and file.name in OF_THIS_INSTALLATION):
                data = path.read_bytes()
                sha256 = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                rows.append((name, f"sha256={sha256.decode()}", str(len(data))))
                out.writestr(_entry(name), data)
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([*rows, (record, "", "")])
        out.writestr(_entry(record), written.getvalue())
    return wheel


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, WHENEVER)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
