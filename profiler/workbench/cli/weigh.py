"""``workbench weigh``."""

from __future__ import annotations

from workbench.app.weigh import weigh
from workbench.cli.options import WeighOptions
from workbench.cli.streams import show
from workbench.errors import UsageError


def run(options: WeighOptions) -> None:
    if bool(options.variant) != bool(options.operator):
        raise UsageError(
            "a variant is weighed where it replaces an operator",
            hint="name both: weigh TRACE VARIANT --operator aten::softmax",
        )
    target = options.target([options.variant]) if options.variant else None
    show(options, weigh(options.trace, target, options.variant or "", options.operator or ()))
