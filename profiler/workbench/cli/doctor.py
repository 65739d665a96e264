"""``workbench doctor``."""

from __future__ import annotations

from workbench.cli.options import DoctorOptions
from workbench.cli.printing import show
from workbench.cli.streams import executor, telling
from workbench.errors import EnvironmentLacks


def run(options: DoctorOptions) -> int:
    """Exit code 3 where nothing can be read, or on a remote target where it cannot measure."""
    with telling(f"waiting for {options.on or 'the tests of ncu, compiler and GPU'}"):
        machine = executor(options.on).doctor()
    show(options, machine)
    return 0 if machine.works["measure" if machine.host else "read"] else EnvironmentLacks.exit_code
