"""One module a verb: where files are opened, progress is shown and exit codes are chosen."""

from __future__ import annotations

from contextvars import ContextVar

# The verb that is running: what it measures is put down to it. A call of the library is none.
VERB: ContextVar[str] = ContextVar("verb", default="library")
