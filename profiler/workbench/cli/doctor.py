"""``workbench doctor``."""

from __future__ import annotations

from workbench.app.doctor import diagnosis
from workbench.cli.options import DoctorOptions
from workbench.cli.streams import show, telling
from workbench.errors import EnvironmentLacks


def run(options: DoctorOptions) -> int:
    """Exit code 3 where nothing can be read."""
    with telling("waiting for the tests of ncu, compiler and GPU"):
        machine = diagnosis()
    show(options, machine)
    return 0 if machine.works["read"] else EnvironmentLacks.exit_code
