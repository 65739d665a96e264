"""``workbench init``."""

from __future__ import annotations

from pathlib import Path

from workbench.app.new import AGENTS, IGNORED, add_agents, new_workspace
from workbench.cli.options import InitOptions
from workbench.cli.printing import say, show_json
from workbench.study.own_files import resolved
from workbench.study.text import stands
from workbench.study.workspace import CONFIG_FILE


def run(options: InitOptions) -> None:
    root = options.folder
    if options.agents and stands(root / CONFIG_FILE):
        added = add_agents(root)
        if options.json:
            return show_json({"folder": root, "written": added})
        left = [name for name in AGENTS.values() if name not in added]
        say(*(f"wrote {name}" for name in added))
        return say(*(f"left alone, since it was there: {name}" for name in left))
    made = new_workspace(root, options.template, agents=options.agents)
    if options.json:
        return show_json(made)
    said = [f"a workspace with the study {made.study} ({options.template}) in {resolved(root)}"]
    said += [f"  wrote {name}" for name in made.written if name != Path(IGNORED)]
    if made.ignored:
        said.append(f"  {IGNORED}: {', '.join(made.ignored)}")
    if made.left_alone:
        said += [f"  left alone, since it was there: {name}" for name in made.left_alone]
        said.append("  the study consists of both: `workbench list` prints more")
    above = [folder for folder in resolved(root).parents if stands(folder / CONFIG_FILE)]
    if above:
        said.append(f"  it stands inside another workspace, {above[0]}, which sees nothing of it")
    verb = "build" if options.template == "cuda" else "check"
    said.append(f"without a GPU: {made.next.replace('ablate', verb)}")
    return say(*said, f"next, where there is a GPU with ncu (`workbench doctor`): {made.next}")
