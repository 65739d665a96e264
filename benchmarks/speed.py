"""How long the recorded path takes: ``python benchmarks/speed.py`` in an installed checkout.

Prints the median wall time of fresh processes against its limit; exit code 1 when one is over.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 5
LIMITS = {("--help",): 0.3, ("ablate",): 3.0, ("report", "--html"): 5.0}


def seconds(arguments: tuple[str, ...]) -> float:
    """Median wall time of ``workbench`` with these arguments, outside any workspace."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(RUNS):
            start = time.perf_counter()
            command = [sys.executable, "-m", "workbench", *arguments]
            subprocess.run(command, cwd=folder, capture_output=True, check=True)
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> int:
    over = False
    for arguments, limit in LIMITS.items():
        took = seconds(arguments)
        over |= took > limit
        verdict = "over" if took > limit else "within"
        print(f"workbench {' '.join(arguments)}: {took:.2f} s, {verdict} the limit of {limit} s")
    return int(over)


if __name__ == "__main__":
    raise SystemExit(main())
