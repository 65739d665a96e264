"""``workbench open``: a capture in Nsight Compute's own window."""

from __future__ import annotations

from pathlib import Path

from workbench.commands.options import OpenOptions
from workbench.commands.printing import say
from workbench.commands.show import current_capture
from workbench.commands.target import find_recorded, shown_path
from workbench.errors import EnvironmentLacks
from workbench.evidence.layout import EvidenceFolder
from workbench.ncu.cache import tables_of
from workbench.ncu.reader import Wanted
from workbench.ncu.report import is_report, require_file
from workbench.run import viewer


def run(options: OpenOptions) -> None:
    if is_report(options.name):
        path, which = Path(options.name), ""
        require_file(path)
    else:
        target = find_recorded(
            options.project, options.study, options.shape, gpu=options.gpu, names=[options.name]
        )
        name = target.variants([options.name])[0]
        path, wanted, _ = current_capture(target, name)
        which = f"; {name} is {numbered(path, wanted, target.folder)} in it"
    found = viewer.find_viewer()
    if found is None:
        raise EnvironmentLacks(
            f"{viewer.VIEWER} is neither beside ncu nor on PATH", hint=viewer.elsewhere(path)
        )
    given = viewer.show(path, found)
    say(f"opened {shown_path(given)}{which}")


def numbered(path: Path, wanted: Wanted, folder: EvidenceFolder) -> str:
    """Where a variant's launches stand: a report holds those of many variants."""
    every = tables_of(path, folder.tables(path.name))
    if isinstance(wanted, tuple):
        found = list(wanted)
    else:
        found = [n for n, (_, ranges) in enumerate(every) if wanted is None or wanted in ranges]
    numbers = ", ".join(map(str, found))
    return f"result{'s' * (len(found) != 1)} {numbers} of 0 to {len(every) - 1}"
