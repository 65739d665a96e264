"""``workbench new``."""

from __future__ import annotations

from shlex import quote

from workbench.app.new import new_step
from workbench.app.target import find_study, shown_path
from workbench.cli.options import NewOptions
from workbench.cli.printing import say, show_json
from workbench.cli.streams import executor
from workbench.errors import UsageError


def run(options: NewOptions) -> None:
    workspace, study = find_study(executor("new"), options.project, options.study, tell=False)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to add a variant to",
            hint="`workbench init` makes one; or go to a folder with a workbench.toml",
        )
    given = (options.name, options.parent, options.change or "", options.predict or [])
    made = new_step(study, *given)
    step, ladder = made.step, study.ladder.path
    chosen = f" --study {quote(study.name)}" if options.study else ""
    command = f"workbench ablate {step.variant}{chosen}"
    if options.json:
        return show_json(
            {
                "study": study.name,
                "variant": step.variant,
                "parent": step.parent,
                "written": [shown_path(path) for path in made.written],
                "shared": made.shared,
                "ladder": shown_path(ladder),
                "predictions": len(step.predictions),
                "next": command,
            }
        )
    say(f"{step.variant}, a copy of {step.parent}:")
    files = [f"  wrote {shown_path(path)}" for path in made.written]
    say(*files, f"  a step in {shown_path(ladder)}")
    if made.shared:
        say(f"  shared with {step.parent}, as before: {', '.join(made.shared)}")
    if not step.predictions:
        say(f"  no prediction: write one into {ladder.name} before you measure")
    return say(f"next: change {shown_path(made.written[-1])}, then `{command}`")
