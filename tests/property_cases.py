"""How many cases a property of ``tests/faults`` is tried on; few are the same in every run."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import HealthCheck, settings

MANY = 100  # times as many
MOST_SECONDS, MOST_BYTES = 30, 1 << 30  # that a case may take
_factor = 1


def configure(*, many: bool) -> None:
    """Called before any test is collected. Many are other ones in each run, by the seed that pytest
    prints at its head, and none may take longer than ``MOST_SECONDS``.
    """
    global _factor
    _factor = MANY if many else 1
    settings.register_profile(
        "faults",
        derandomize=not many,
        deadline=timedelta(seconds=MOST_SECONDS) if many else None,
        print_blob=many,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("faults")


def examples(few: int, many: int | None = None) -> int:
    """``few``; with ``--faults=many`` a hundred times as many, or ``many``."""
    if _factor == 1:
        return few
    return many or few * _factor
