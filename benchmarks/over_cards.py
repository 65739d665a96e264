"""How often intervals hold whose sessions ran on several cards: ``-m benchmarks.over_cards``.

Drawn 4000 times a row: a card adds what all its sessions have in common, with a standard deviation
in that of a session; the true ratio is 1.
"""

from __future__ import annotations

import random

from workbench.derive.intervals import over_sessions

DRAWN = 4000
LAYOUTS = ((2, 3), (3, 2), (4, 3), (5, 1))  # cards, and sessions of each
SPREADS = (0.0, 0.5, 1.0, 2.0)


def row(cards: int, each: int, spread: float, draw: random.Random) -> tuple[float, float, float]:
    """In percent, how often it holds over cards and over sessions; how many times wider it is."""
    held = naive = 0
    wider = 0.0
    for _ in range(DRAWN):
        logs: list[float] = []
        for _ in range(cards):
            common = draw.gauss(0, spread)
            logs += [common + draw.gauss(0, 1) for _ in range(each)]
        names = [str(card) for card in range(cards) for _ in range(each)]
        over, under = over_sessions(logs, cards=names), over_sessions(logs)
        held += over.holds(1.0)
        naive += under.holds(1.0)
        wider += (over.half_width or 0.0) / (under.half_width or 1.0)
    return 100 * held / DRAWN, 100 * naive / DRAWN, wider / DRAWN


def main() -> None:
    draw = random.Random(7)
    print("| cards | sessions of each | between cards | holds, over cards | holds, over sessions |"
          " wider |")  # fmt: skip
    print("| --: | --: | --: | --: | --: | --: |")
    for cards, each in LAYOUTS:
        for spread in SPREADS:
            held, naive, wider = row(cards, each, spread, draw)
            print(f"| {cards} | {each} | {spread:g} | {held:.1f} % | {naive:.1f} % | {wider:.2f} |")


if __name__ == "__main__":
    main()
