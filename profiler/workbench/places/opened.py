"""What opening a place gives: where its scheduler listens, and what it takes to speak with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tell = Callable[[str], None]  # takes a line of progress


@dataclass(frozen=True)
class Opened:
    """``security`` is distributed's ``Security``; None where nobody else reaches the address.

    ``workers`` are those that were asked for; more or fewer may come and go. ``loop`` is the event
    loop of a scheduler in this process: a client on the same one waits for no other thread.
    """

    address: str
    security: Any
    workers: int
    loop: Any = None
