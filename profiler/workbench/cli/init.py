"""``workbench init``."""

from __future__ import annotations

from workbench.app.new import add_agents, new_workspace
from workbench.cli.options import InitOptions
from workbench.cli.streams import show
from workbench.study.files import stands
from workbench.study.workspace import CONFIG_FILE


def run(options: InitOptions) -> None:
    root = options.folder
    if options.agents and stands(root / CONFIG_FILE):
        show(options, (root, add_agents(root)))
    else:
        show(options, new_workspace(root, options.template, agents=options.agents))
