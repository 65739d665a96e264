"""``doctor``: what works on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.render.document.blocks import Block
from workbench.render.document.environment import findings

if TYPE_CHECKING:
    from workbench.app.doctor import Diagnosis


def data(result: Diagnosis) -> dict[str, object]:
    host: dict[str, object] = {"host": result.host} if result.host else {}
    known = {"rows": result.rows, "works": result.works, "conclusion": result.conclusion}
    return {**host, **known}


def brief(result: Diagnosis) -> dict[str, object]:
    from workbench.render import brief as in_short  # reads records: not without msgspec

    return in_short.doctor(result.rows, result.works, result.conclusion)


def blocks(result: Diagnosis, _: object) -> list[Block]:
    title = ": ".join(filter(None, [result.host, result.conclusion]))
    return findings(result.rows, title)
