"""``workbench schema``."""

from __future__ import annotations

from workbench.cli.options import SchemaOptions
from workbench.cli.printing import show
from workbench.errors import unknown
from workbench.reporters.schema import VERBS


def run(options: SchemaOptions) -> None:
    if options.verb not in VERBS:
        raise unknown("verb with --brief", options.verb, VERBS)
    show(options, options.verb)
