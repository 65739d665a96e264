"""A sweep of a million points over a thousand cards, on paper: ``python -m benchmarks.million MS``.

``MS`` is what a block costs the client in milliseconds of processor time, by ``benchmarks.blocks
--alone``. All else was measured on one H200 and stands in docs/measuring.md, docs/architecture.md
or the recorded evidence.
"""

from __future__ import annotations

import sys

POINTS, CARDS = 1_000_000, 1000
BESIDE = 2  # the default and a reference are in every block
PROCESS = 11.0  # seconds until a process has imported torch and launches
COMPILE = 0.4  # a kernel
SESSIONS, INSTANCES = 5, 4
FORK = 0.26  # a session's process and context
INSTANCE = (1.44 + 0.95) / 228  # to build, and its part of the rounds, at the short shape
KILOBYTES = 4.6  # of evidence for a variant in a session


def column(points: int, overhead: float) -> dict[str, str]:
    """Of so many points a block; ``overhead`` in seconds a block."""
    blocks, variants = POINTS / points, points + BESIDE
    session = FORK + variants * INSTANCES * INSTANCE
    seconds = PROCESS + variants * COMPILE + SESSIONS * session
    whole = blocks * seconds / CARDS
    return {
        "points a block": f"{points}",
        "blocks": f"{blocks:,.0f}",
        "seconds of a block": f"{seconds:.1f}",
        "card hours": f"{blocks * seconds / 3600:,.0f}",
        "minutes on 1000 cards": f"{whole / 60:.0f}",
        "minutes of the client": f"{blocks * overhead / 60:.0f}",
        "evidence, GB": f"{blocks * variants * SESSIONS * KILOBYTES / 1e6:.0f}",
    }


def main() -> None:
    overhead = float(sys.argv[1]) / 1e3
    columns = [column(points, overhead) for points in (1, 10, 30, 100)]
    first, *rest = columns[0]
    print("| " + " | ".join([first, *(each[first] for each in columns)]) + " |")
    print("| --- |" + " --: |" * len(columns))
    for key in rest:
        print("| " + " | ".join([key, *(each[key] for each in columns)]) + " |")


if __name__ == "__main__":
    main()
