"""What a package knows of its variant: ``variant.json``, written when it is shipped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.shipped.domain import Case, Domain

FILE = "variant.json"
CUBINS = "cubins"
TENSOR = "Tensor"
ONE, SEVERAL, NAMED, NOTHING = "tensor", "tuple", "dict", "nothing"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """``function`` is what the package calls the operator, ``arguments`` its names and kinds
    (``Tensor`` or a type of Python), ``outputs`` the names of what it returns ("" for none), in the
    manner of ``returns``.

    ``reference`` is the variant that answers what this one does not, "" for the study's own
    function in float64. ``keeps`` are the places where the variant may keep something from call to
    call: each stream and each captured graph then has a copy of the module to itself. ``checked``
    and ``refused`` are shapes of the study at which it was found correct, and that it does not
    support.
    """

    package: str
    function: str
    study: str
    variant: str
    module: str
    params: Mapping[str, bool | int | float | str]
    arguments: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    returns: str
    in_place: tuple[str, ...]
    reference: str
    reference_params: Mapping[str, bool | int | float | str]
    keeps: tuple[str, ...]
    checked: tuple[str, ...]
    refused: tuple[str, ...]
    default_shape: str
    domain: Domain

    @property
    def schema(self) -> str:
        """As ``torch.library`` writes it; ``strict`` is the operator's own."""
        given = ", ".join(
            f"{kind}{f'(a{at}!)' if name in self.in_place else ''} {self.in_schema(name)}"
            for at, (name, kind) in enumerate(self.arguments)
        )
        out = "Tensor" if len(self.outputs) == 1 else f"({', '.join([TENSOR] * len(self.outputs))})"
        return f"({given}, bool strict) -> {out}"

    def in_schema(self, name: str) -> str:
        """What an argument is called there. Where some are changed in place, torch passes them by
        name to functions that have names of their own (``mode``).
        """
        return f"{name}_" if self.in_place else name

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """The names of the arguments that are tensors."""
        return tuple(name for name, kind in self.arguments if kind == TENSOR)


def write(path: Path, facts: Facts) -> None:
    path.write_text(json.dumps(asdict(facts), indent=1) + "\n", "utf-8")


def read(path: Path) -> Facts:
    found = json.loads(path.read_text("utf-8"))
    domain = found.pop("domain")
    return Facts(
        **{key: _frozen(value) for key, value in found.items()},
        domain=Domain(
            cases=tuple(
                Case(**{k: _frozen(v) for k, v in case.items()}) for case in domain["cases"]
            ),
            values={name: _frozen(v) for name, v in domain["values"].items()},
            strided=_frozen(domain["strided"]),
        ),
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
