"""Which verb is running: what it measures is put down to it."""

from __future__ import annotations

from contextvars import ContextVar

VERB: ContextVar[str] = ContextVar("verb", default="")
