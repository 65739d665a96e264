"""``Model`` and ``ModelNew`` of a KernelBench problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.errors import UsageError
from workbench.problems.given.calls import only
from workbench.problems.given.files import File
from workbench.problems.given.inputs import Empty

SEED = 42  # that of the benchmark, ``eval_kernel_against_ref``


class Network:
    """The ``Model`` of a problem, or the ``ModelNew`` of ``new``: made at the first call.

    ``double`` is another one of the same parameters in float64.
    """

    def __init__(self, file: File, new: File | None = None, *, compiled: bool = False) -> None:
        self.file, self.new, self.is_compiled = file, new, compiled
        self._made: dict[bool, Any] = {}

    def __call__(self, inputs: Mapping[str, Any]) -> Any:
        import torch

        with torch.no_grad():
            return only(self._of(inputs, exact=False)(*inputs.values()))

    def double(self, inputs: Mapping[str, Any]) -> Any:
        return self._of(inputs, exact=True)(*inputs.values())

    def _of(self, inputs: Mapping[str, Any], *, exact: bool) -> Any:
        import torch

        if exact not in self._made:
            tensors = [v for v in inputs.values() if isinstance(v, torch.Tensor | Empty)]
            device = tensors[0].device if tensors else torch.device("cuda")
            model = self.model("Model", self.file, device)
            if self.new is not None:
                model = _with_parameters(self.model("ModelNew", self.new, device), model)
            model = model.double() if exact else model
            self._made[exact] = torch.compile(model) if self.is_compiled else model
        return self._made[exact]

    def model(self, name: str, file: File, device: Any) -> Any:
        import torch

        with torch.device(device):
            torch.manual_seed(SEED)
            init: list[Any] = getattr(self.file.module, "get_init_inputs", list)()
            torch.manual_seed(SEED)
            made = getattr(file, name)(*init)
        if not isinstance(made, torch.nn.Module):
            raise UsageError(f"{file.path.name}: {name} is no torch.nn.Module")
        return made.to(device)


def _with_parameters(model: Any, like: Any) -> Any:
    """With those of the other one where names and shapes are the same; else they are its own, of
    the same seed.
    """
    state, own = like.state_dict(), model.state_dict()
    if {n: t.shape for n, t in state.items()} == {n: t.shape for n, t in own.items()}:
        model.load_state_dict(state)
    return model
