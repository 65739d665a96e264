"""What is certain of the shares of stall samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.derive.figures import Figure
from workbench.derive.stalls import standard_error, top_stall
from workbench.render.document.limits import samples


def stall_certainty(stalls: Mapping[str, float], known: Mapping[str, Figure]) -> dict[str, Any]:
    """The standard errors of the shares of stall samples, and the reasons that tie for the top."""
    count = samples(known)
    top = top_stall(stalls, count)
    return {
        "stall_standard_errors": {name: standard_error(p, count) for name, p in stalls.items()},
        "top_stalls": list(top.reasons) if top else [],
    }
