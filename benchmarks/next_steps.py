"""Moves the steps that wait in ``next.toml`` into their ladder: ``-m benchmarks.next_steps STUDY``.

To be done where a GPU records them. Where none waits any more, there is nothing to do.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from workbench.study.ladder_text import with_step

ROOT = Path(__file__).resolve().parents[1]
FIRST = "[[step]]"


def move(folder: Path) -> list[str]:
    """Behind the last step of the ladder in ``folder``; which they are."""
    waiting, ladder = folder / "next.toml", folder / "ablation.toml"
    if not waiting.is_file():
        return []
    text = waiting.read_text(encoding="utf-8")
    steps = text[text.index(FIRST) :]  # above it stands what is true of them while they wait
    ladder.write_text(with_step(ladder, ladder.read_text(encoding="utf-8"), steps), "utf-8")
    waiting.unlink()
    return [str(step["variant"]) for step in tomllib.loads(steps)["step"]]


def main(arguments: list[str]) -> int:
    for study in arguments:
        moved = move(ROOT / "ablations" / study)
        print(f"{study}: {', '.join(moved) or 'no step waits'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
