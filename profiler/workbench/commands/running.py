"""Which verb is running: what it measures is put down to it. A call of the library is none."""

from __future__ import annotations

from contextvars import ContextVar

VERB: ContextVar[str] = ContextVar("verb", default="library")
