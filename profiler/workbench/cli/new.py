"""``new``: a step that was copied from its parent."""

from __future__ import annotations

from pathlib import Path

from workbench.app.executor import Local
from workbench.app.new import NewStep, new_step
from workbench.app.target import find_study
from workbench.cli.options import NewOptions
from workbench.cli.streams import show
from workbench.errors import UsageError
from workbench.render.as_json import Data, shown_fields


def run(options: NewOptions) -> None:
    workspace, study = find_study(Local(), options.project, options.study)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to add a variant to",
            hint="`workbench init` makes one; or go to a folder with a workbench.toml",
        )
    asked = (options.name, options.parent, options.change or "", options.predict or [])
    made = new_step(study, *asked, by_name=options.study is not None)
    show(options, made)


def brief(result: NewStep) -> Data:
    return {**shown_fields(result), "next_command": f"{result.next_command} --brief"}


def lines(result: NewStep) -> list[str]:
    said = [f"{result.variant}, a copy of {result.parent}:"]
    said += [f"  wrote {path}" for path in result.written]
    said.append(f"  a step in {result.ladder}")
    if result.shared:
        said.append(f"  shared with {result.parent}, as before: {', '.join(result.shared)}")
    if not result.predictions:
        said.append(
            f"  no prediction: write one into {Path(result.ladder).name} before you measure"
        )
    return [*said, f"next: change {result.written[-1]}, then `{result.next_command}`"]
