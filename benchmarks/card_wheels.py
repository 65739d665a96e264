"""Packages that a machine without an index is given as wheels: ``benchmarks.on_card --wheels``.

Nothing but the standard library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.card_steps import DSL
from benchmarks.card_tree import PART, joined

WHEEL = re.compile(r"(?P<whole>.+\.whl)(?:\.part\d+)?$")
CUTE_CACHE = "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"  # FlashAttention-4 compiles once, and
CUTE_FOLDER = "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"  # not in every process anew


@dataclass(frozen=True)
class Site:
    """``packages`` is put on PYTHONPATH, ``wheels`` has what was brought so far, ``cache`` what
    compilers keep.
    """

    packages: Path
    wheels: Path
    cache: Path

    def install(self, folders: Sequence[Path]) -> list[str]:
        """The wheels of some folders, with those of before where there are new ones. Those in
        pieces are joined, which may have come with different calls; returns the names of those
        that are not whole.

        Raises subprocess.CalledProcessError where pip fails.
        """
        self.wheels.mkdir(parents=True, exist_ok=True)
        for folder in folders:
            for path in sorted(folder.iterdir()):
                if path.suffix == ".whl" or PART.fullmatch(path.name):
                    shutil.copyfile(path, self.wheels / path.name)
        for name, data in joined(self.wheels.iterdir()).items():
            (self.wheels / name).write_bytes(data)
        names = {
            match["whole"] for path in self.wheels.iterdir() if (match := WHEEL.match(path.name))
        }
        whole = {name for name in names if zipfile.is_zipfile(self.wheels / name)}
        done = self.wheels / "installed"
        known = set(done.read_text().split()) if done.is_file() else set()
        if whole - known:  # all anew: pip replaces a folder that a package of before shares
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
            flags = ["--no-compile", "--no-cache-dir", "--disable-pip-version-check", "--upgrade"]
            command = [*pip, *flags, "--target", str(self.packages)]
            subprocess.run(
                [*command, *(str(self.wheels / name) for name in sorted(whole))], check=True
            )
            done.write_text("".join(f"{name}\n" for name in sorted(whole)))
        return sorted(names - whole)

    def environment(self, tree: Path, source: Path) -> dict[str, str]:
        """For the commands of a step: the tree's own code, then these packages, and nothing of the
        ``source`` that the tree is a copy of.
        """
        known = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        others = [path for path in known if not Path(path).resolve().is_relative_to(source)]
        own = [tree / "profiler", tree, self.packages, self.packages / DSL]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*map(str, own), *others]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "NO_COLOR": "1",
            CUTE_CACHE: "1",
            CUTE_FOLDER: str(self.cache),
        }
