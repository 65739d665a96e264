"""How often intervals hold whose sessions ran on several cards: ``-m benchmarks.over_cards``.

Drawn 4000 times a row: a card adds what all its sessions have in common, with a standard deviation
in that of a session; the true ratio is 1.
"""

from __future__ import annotations

import math
import random

from workbench.derive.intervals import over_sessions

DRAWN = 4000
LAYOUTS = ((2, 3), (3, 2), (4, 3), (5, 1))  # cards, and sessions of each
SPREADS = (0.0, 1.0, 3.0)


def row(cards: int, each: int, spread: float, draw: random.Random) -> list[float]:
    """In percent, how often the interval holds what is true of all cards of the kind, and of every
    one of these; the first over sessions; how many times wider than over sessions it is.
    """
    all_cards = these = naive = 0
    wider = 0.0
    for _ in range(DRAWN):
        logs: list[float] = []
        commons = [draw.gauss(0, spread) for _ in range(cards)]
        for common in commons:
            logs += [common + draw.gauss(0, 1) for _ in range(each)]
        names = [str(card) for card in range(cards) for _ in range(each)]
        over, under = over_sessions(logs, cards=names), over_sessions(logs)
        all_cards += over.holds(1.0)
        these += all(over.holds(math.exp(common)) for common in commons)
        naive += under.holds(1.0)
        wider += (over.half_width or 0.0) / (under.half_width or 1.0)
    return [*(100 * held / DRAWN for held in (all_cards, these, naive)), wider / DRAWN]


def main() -> None:
    draw = random.Random(7)
    print("| cards | sessions of each | between cards | of the kind | of each of these |"
          " over sessions, of the kind | wider |")  # fmt: skip
    print("| --: | --: | --: | --: | --: | --: | --: |")
    for cards, each in LAYOUTS:
        for spread in SPREADS:
            *held, wider = row(cards, each, spread, draw)
            told = " | ".join(f"{share:.1f} %" for share in held)
            print(f"| {cards} | {each} | {spread:g} | {told} | {wider:.2f} |")


if __name__ == "__main__":
    main()
