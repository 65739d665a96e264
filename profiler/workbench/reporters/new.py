"""``new``: a step that was copied from its parent."""

from __future__ import annotations

from pathlib import Path

from workbench.app.new import NewStep
from workbench.render.as_json import Data, shown_fields


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
