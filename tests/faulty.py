"""How many cases a property of ``tests/faults`` is tried on; every run tries the same ones."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

MANY = 100  # times as many
_factor = 1


def configure(*, many: bool) -> None:
    """Called before any test is collected."""
    global _factor
    _factor = MANY if many else 1
    settings.register_profile(
        "faults",
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("faults")


def examples(few: int, many: int | None = None) -> int:
    """``few``; with ``--faults=many`` a hundred times as many, or ``many``."""
    if _factor == 1:
        return few
    return many or few * _factor
