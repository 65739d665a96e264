"""``workbench schema``."""

from __future__ import annotations

from workbench.cli.options import SchemaOptions
from workbench.cli.streams import show
from workbench.errors import unknown
from workbench.reporters.schema import VERBS, of_json, schema


def run(options: SchemaOptions) -> None:
    if options.of_json:
        show(options, of_json(options.verb))
        return
    if options.verb not in VERBS:
        raise unknown("verb with --brief", options.verb, VERBS)
    show(options, schema(options.verb))
