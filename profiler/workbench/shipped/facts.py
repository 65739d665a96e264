"""Describe the variant of a package: ``variant.json``, and the inputs it was checked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


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
        """The schema as ``torch.library`` writes it; ``strict`` is the operator's own."""
        arguments = ", ".join(
            f"{kind}{f'(a{index}!)' if name in self.in_place else ''} {self.in_schema(name)}"
            for index, (name, kind) in enumerate(self.arguments)
        )
        out = "Tensor" if len(self.outputs) == 1 else f"({', '.join([TENSOR] * len(self.outputs))})"
        return f"({arguments}, bool strict) -> {out}"

    def in_schema(self, name: str) -> str:
        """Name an argument in the schema. Where some are changed in place, torch passes them by
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
    data = json.loads(path.read_text("utf-8"))
    domain = data.pop("domain")
    return Facts(
        **{key: _frozen(value) for key, value in data.items()},
        domain=Domain(
            cases=tuple(
                CheckedCase(**{k: _frozen(v) for k, v in case.items()}) for case in domain["cases"]
            ),
            values={name: _frozen(v) for name, v in domain["values"].items()},
            strided=_frozen(domain["strided"]),
        ),
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


Place = tuple[int, int]  # a tensor among the tensors, and one of its dimensions
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Given:
    """A tensor: its type without ``torch.``, its extents, and whether it lies in order."""

    dtype: str
    extents: tuple[int, ...]
    in_order: bool = True


@dataclass(frozen=True, kw_only=True)
class CheckedCase:
    """Inputs of these numbers of dimensions, by tensor.

    ``dtypes`` are the combinations of types that there were. Extents at the places of a group of
    ``equal`` were the same at every shape; those of ``fixed``, (tensor, dimension, extent), the
    same at all shapes.
    """

    ranks: tuple[int, ...]
    dtypes: tuple[tuple[str, ...], ...]
    equal: tuple[tuple[Place, ...], ...]
    fixed: tuple[tuple[int, int, int], ...]

    def why_not(self, names: Sequence[str], tensors: Sequence[Given]) -> str:
        """ "" for inputs that fit."""
        types = tuple(tensor.dtype for tensor in tensors)
        if types not in self.dtypes:
            checked = " or ".join(", ".join(dtypes) for dtypes in self.dtypes)
            return f"{', '.join(types)} for {', '.join(names)}: it was checked for {checked}"
        for (first, dimension), *others in self.equal:
            wanted = tensors[first].extents[dimension]
            for other, place in others:
                if tensors[other].extents[place] != wanted:
                    return (
                        f"{names[other]}.shape[{place}] is {tensors[other].extents[place]}, and "
                        f"{names[first]}.shape[{dimension}] is {wanted}: it was only checked where "
                        "they are the same"
                    )
        for which, dimension, extent in self.fixed:
            if tensors[which].extents[dimension] != extent:
                return (
                    f"{names[which]}.shape[{dimension}] is {tensors[which].extents[dimension]}: it "
                    f"was only checked for {extent}"
                )
        return ""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """``values`` has, by argument that is no tensor, those that it may have; none where it varied
    from shape to shape and so may have any. Tensors that are ``strided`` need not lie in order.
    """

    cases: tuple[CheckedCase, ...]
    values: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    strided: tuple[str, ...] = ()

    def why_not(
        self, names: Sequence[str], tensors: Sequence[Given], values: Mapping[str, Scalar]
    ) -> str:
        """Why inputs are none of those that the variant was checked for; "" where they are."""
        ranks = tuple(len(tensor.extents) for tensor in tensors)
        case = next((case for case in self.cases if case.ranks == ranks), None)
        if case is None:
            checked = " or ".join(str(tensor.ranks) for tensor in self.cases)
            return f"tensors of {ranks} dimensions: it was checked for {checked}"
        if any(0 in tensor.extents for tensor in tensors):
            return "a tensor without elements"
        for name, value in values.items():
            allowed = self.values.get(name, ())
            if allowed and value not in allowed:
                checked = ", ".join(map(repr, allowed))
                return f"{name}={value!r}: it was only checked for {checked}"
        return case.why_not(names, tensors)


def given_of(tensor: torch.Tensor) -> Given:
    """Describe a tensor for a domain."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Given(dtype, tuple(tensor.shape), tensor.is_contiguous())


def inferred(
    names: Sequence[str], calls: Sequence[tuple[Sequence[Given], Mapping[str, Scalar]]]
) -> Domain:
    """From the inputs of some calls, each its tensors and its other values."""
    cases = []
    for ranks in dict.fromkeys(tuple(len(g.extents) for g in tensors) for tensors, _ in calls):
        of = [g for g, _ in calls if tuple(len(tensor.extents) for tensor in g) == ranks]
        cases.append(_case(ranks, of))
    scalars = {name: [values[name] for _, values in calls] for name in calls[0][1]}
    strided = [n for index, n in enumerate(names) if any(not g[index].in_order for g, _ in calls)]
    return Domain(
        cases=tuple(cases),
        values={name: _allowed(values) for name, values in scalars.items()},
        strided=tuple(strided),
    )


def _allowed(values: Iterable[Scalar]) -> tuple[Scalar, ...]:
    """A number that was another at every shape may be any; a truth value or a word is one of
    those that there were.
    """
    distinct = tuple(dict.fromkeys(values))
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in distinct)
    return () if numbers and len(distinct) > 1 else distinct


def _case(ranks: tuple[int, ...], calls: Sequence[Sequence[Given]]) -> CheckedCase:
    places = [(which, dimension) for which, rank in enumerate(ranks) for dimension in range(rank)]
    by_extents: dict[tuple[int, ...], list[Place]] = {}
    for which, dimension in places:
        extents = tuple(tensors[which].extents[dimension] for tensors in calls)
        by_extents.setdefault(extents, []).append((which, dimension))
    fixed = [
        (*place, extents[0])
        for extents, group in by_extents.items()
        if len(set(extents)) == 1
        for place in group
    ]
    return CheckedCase(
        ranks=ranks,
        dtypes=tuple(dict.fromkeys(tuple(tensor.dtype for tensor in tensors) for tensors in calls)),
        equal=tuple(
            tuple(group)
            for extents, group in by_extents.items()
            if len(group) > 1 and len(set(extents)) > 1
        ),
        fixed=tuple(fixed),
    )
