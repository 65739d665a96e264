"""Folders of many small files, each kept in one file in Go's txtar format: a line ``-- PATH --``
stands above the text of each file. The file is compressed if its name ends so, and compressed files
of the folder stay files of their own.

python -m tools.folders pack FILE.txtar[.zst] FOLDER
python -m tools.folders unpack FILE.txtar[.zst] FOLDER
"""

from __future__ import annotations

import atexit
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from workbench.study.files import compressed, decompressed

ZST = ".zst"
COMPRESSED = (ZST, ".ncu-repz")
HEAD = re.compile(r"^-- (\S+) --\n", re.MULTILINE)


def unpack(archive: Path, folder: Path) -> Path:
    data = archive.read_bytes()
    whole = decompressed(data) if archive.suffix == ZST else data
    _, *parts = HEAD.split(whole.decode())
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


@cache
def unpacked(archive: Path) -> Path:
    """A folder with the files of an archive, made once a process and removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix=f"{archive.stem}-")).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return unpack(archive, folder)


@cache
def unpacked_workspace(folder: Path) -> Path:
    """A folder of this process: what a folder's archives hold, and what stands in ``ablations``."""
    first, *more = folder.glob("*.txtar*")
    made = unpacked(first)
    for archive in more:
        unpack(archive, made)
    shutil.copytree(folder / "ablations", made / "ablations", dirs_exist_ok=True)
    return made


def pack(archive: Path, folder: Path) -> None:
    every = (path for path in folder.rglob("*") if path.suffix not in COMPRESSED)
    files = sorted(path for path in every if path.is_file())
    texts = [f"-- {path.relative_to(folder)} --\n{path.read_text('utf-8')}" for path in files]
    assert all(text.endswith("\n") for text in texts), "every file ends with a newline"
    data = "".join(texts).encode()
    archive.write_bytes(compressed(data) if archive.suffix == ZST else data)


if __name__ == "__main__":
    {"pack": pack, "unpack": unpack}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
