"""``workbench doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.cli.options import DoctorOptions
from workbench.cli.printing import tell
from workbench.cli.streams import executor
from workbench.errors import EnvironmentLacks
from workbench.render.document.environment import findings

if TYPE_CHECKING:
    from workbench.app.doctor import Diagnosis


def run(options: DoctorOptions) -> int:
    """Exit code 3 where nothing can be read, or on a remote target where it cannot measure."""
    found = executor("doctor", options.on).doctor()
    host = {"host": found.host} if found.host else {}
    data = {"rows": found.rows, "works": found.works, "conclusion": found.conclusion}
    title = ": ".join([*host.values(), found.conclusion])
    tell(
        options,
        lambda: {**host, **data},
        lambda: findings(found.rows, title),
        lambda: in_brief(found),
    )
    return 0 if found.works["measure" if host else "read"] else EnvironmentLacks.exit_code


def in_brief(found: Diagnosis) -> dict[str, object]:
    from workbench.render import brief  # reads records: not without msgspec

    return brief.doctor(found.rows, found.works, found.conclusion)
