"""A package's operator, by ``torch.library``: ``torch.compile`` sees one node of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from workbench.shipped.dispatch import Dispatcher


class Operator:
    """The operator of a ``package``, named after it, whose files stand in ``folder``.

    ``strict`` is what a call does that does not say: raise NotImplementedError where the variant
    does not support its inputs, in place of using the reference.
    """

    def __init__(self, package: str, folder: Path) -> None:
        self.strict = False
        self.namespace = package.replace(".", "_")
        self._dispatcher = Dispatcher(package, folder)
        self.facts = facts = self._dispatcher.facts
        # Inductor's own graphs share memory that a kept counter would be taken for a leak of.
        unsafe = getattr(torch.Tag, "cudagraph_unsafe", None) if facts.keeps else None
        tags = [] if unsafe is None else [unsafe]  # torch 2.11 takes no single one
        self.definition = torch.library.custom_op(
            f"{self.namespace}::{facts.function}",
            self._dispatcher.call,
            mutates_args=tuple(map(facts.in_schema, facts.in_place)),
            schema=facts.schema,
            tags=tags,
        )
        self.definition.register_fake(self._dispatcher.fake)
        if not facts.in_place:  # torch differentiates no operator that changes its inputs
            self.definition.register_autograd(
                self._dispatcher.backward, setup_context=self._dispatcher.setup
            )

    def serial(self, always: bool) -> None:
        """Whether calls come one after the other in all streams and graphs; see ``Instances``."""
        self._dispatcher.instances.serial = always

    @property
    def counts(self) -> Mapping[str, int]:
        """How often the variant answered, and the reference, by the reason why."""
        return dict(self._dispatcher.counts)

    def reference(self, **inputs: Any) -> Any:
        """What answers where the variant does not, called by itself: its tensors."""
        return self._dispatcher.theirs(inputs)

    @property
    def study(self) -> Any:
        """The study's module: inputs, shapes, tolerance and the reference in float64."""
        return self._dispatcher.study
