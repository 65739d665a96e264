"""Provide what the modules of a study made from a problem call: the user's files, inputs,
references.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import random
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from pkgutil import resolve_name
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from workbench.errors import GateFailed, UsageError, unknown
from workbench.problems.user_files import INIT, dotted, functions, package_root
from workbench.study.front_ends import STREAM, decorators
from workbench.study.users_code import TooLong, in_words, line_in, time_limit
from workbench.study.workspace import load_module
from workbench.words import Inputs

if TYPE_CHECKING:
    import torch

    from workbench.study.values import Shape
else:

    class Torch:
        """Imports torch at its first use: the command line reads a study without it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(sys.modules.get("torch") or importlib.import_module("torch"), name)

    torch = Torch()


class Dotted:
    """``torch.nn.functional.softmax``, looked up at its first call.

    Raises UsageError where it is none, or cannot be called.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """A view of an argument, such as torch.t gives, comes in memory of its own: it is to be
        compared with a kernel that writes a result.
        """
        out = self.function(*arguments, **keywords)
        every = (*arguments, *keywords.values())
        if not _is_tensor(out) or any(out is argument for argument in every):
            return out
        memory = {v.untyped_storage().data_ptr() for v in every if _is_tensor(v)}
        is_view = out.untyped_storage().data_ptr() in memory
        return out.clone(memory_format=torch.contiguous_format) if is_view else out

    @cached_property
    def function(self) -> Callable[..., Any]:
        try:
            value = resolve_name(self.name)
        except AttributeError as error:
            name = str(error.name)
            owner = self.name.partition(f".{name}")[0]
            raise unknown(f"name in {owner}", name, dir(error.obj)) from None
        if not callable(value):
            raise UsageError(f"{self.name} cannot be called", hint="--vs names a function")
        return value  # type: ignore[no-any-return]


class WithoutRuns(SourceFileLoader):
    """Loads a script without the calls of its own tests and benchmarks, and what it profiles or
    prints: they would run again in every process, and only one profiler can be at work.
    """

    def source_to_code(  # type: ignore[override]
        self, data: Any, path: Any, *, _optimize: int = -1
    ) -> Any:
        tree = ast.parse(data, path)
        defined, lost = functions(tree), set[str]()
        for node in list(tree.body):
            profiles = isinstance(node, ast.With) and any(
                re.search(r"\bprofiler?\b", ast.unparse(item.context_expr)) for item in node.items
            )  # with torch.profiler.profile(...) as prof:
            lost.update(_bound([node]) if profiles else [])
            if profiles or _runs(node, defined, lost):
                tree.body.remove(node)
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)


_SCRIPT = re.compile(r"(run_)?(test|bench|main|profile|time_)")
_ENDS = ("print", "exit", "quit", "sys.exit", "unittest.main", "pytest.main", "fire.Fire")
_BENCHMARKS = ("perf_report", "analyze.kernel")  # decorators of Triton and of nsight-python


def _runs(node: ast.stmt, defined: Mapping[str, ast.FunctionDef], lost: Collection[str]) -> bool:
    """Whether it only prints or ends, uses names that are ``lost``, or calls one of the ``defined``
    functions that is a test or a benchmark.
    """
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    called = ast.unparse(node.value.func)
    name = called.partition(".")[0]
    if called in _ENDS or any(n.id in lost for n in ast.walk(node) if isinstance(n, ast.Name)):
        return True
    marks = decorators(defined[name]) if name in defined else {}
    return name in defined and (
        _SCRIPT.match(name) is not None or any(b in m for b in _BENCHMARKS for m in marks)
    )


OWN = "workbench_"  # what the names of modules begin with that are loaded by path
_packages: dict[str, dict[str, ModuleType]] = {}  # of each variant, by the path of its module

LOADING_SEED, LOADING_SECONDS = 20261, 180.0  # which compiles an extension, too


@contextmanager
def same_draws() -> Iterator[None]:
    """Weights that a module draws while it is loaded inside are those of every other load of it,
    with values even where inputs are drawn without. Afterwards generators go on as if nothing had
    been drawn.
    """
    import numpy
    from torch.utils._python_dispatch import _disable_current_modes

    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    plain, numpys = random.getstate(), numpy.random.get_state()
    with _disable_current_modes(), torch.random.fork_rng(devices):
        torch.manual_seed(LOADING_SEED)
        random.seed(LOADING_SEED)
        numpy.random.seed(LOADING_SEED)
        try:
            yield
        finally:
            random.setstate(plain)
            numpy.random.set_state(numpys)


class File:
    """A user's file ``name`` in the folder of the module ``beside``, loaded at its first use.

    With everything that it imports from its own folder, anew: two variants share no module. The
    rest of its package is loaded once for each of them: some have a hundred modules.
    """

    def __init__(self, beside: str, name: str, arguments: Sequence[str] = ()) -> None:
        self.beside, self.arguments = beside, arguments
        self.path = Path(beside).resolve().parent / name

    @cached_property
    def module(self) -> ModuleType:
        """Raises GateFailed for an AttributeError, which would look like one of this class, and for
        what runs for minutes.
        """
        sys.argv = [str(self.path), *self.arguments]
        try:
            with same_draws(), time_limit(LOADING_SECONDS):
                return self.loaded()
        except (AttributeError, TooLong) as error:
            where = f"{self.path.name}{line_in(self.path, error)}"
            raise GateFailed(
                f"{where} fails while it is imported: {in_words(error)}",
                hint="fix this line, or move what a script runs below if __name__ == '__main__':",
            ) from error

    def loaded(self) -> ModuleType:
        """Anew; as a part of its package where its folder has an ``__init__.py``."""
        folder = package_root(self.path)
        sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]
        for name in _below(folder):
            del sys.modules[name]
        if folder != self.path.parent:
            package = _packages.setdefault(self.beside, {})
            this_module = dotted(self.path.relative_to(folder))
            sys.modules.update({n: module for n, module in package.items() if n != this_module})
            importlib.invalidate_caches()
            module = importlib.import_module(this_module)
            package.update(_below(folder))
            return module
        name = f"{OWN}given_{self.path.stem}"
        return load_module(self.path, name, WithoutRuns(name, str(self.path)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(self.module, name)
        except AttributeError:
            raise UsageError(
                f"{self.path.name} defines no '{name}'", hint="is it defined under a condition?"
            ) from None


def _below(folder: Path) -> dict[str, ModuleType]:
    files = (p for p in folder.iterdir() if p.suffix == ".py" or (p / INIT).is_file())
    stems = {path.stem for path in files}
    modules = {name: m for name, m in sys.modules.items() if name.partition(".")[0] in stems}
    return {name: module for name, module in modules.items() if not name.startswith(OWN)}


class Extension(File):
    """Sources in C++ or CUDA, compiled at their first use: by TVM FFI, or by torch."""

    def __init__(self, beside: str, name: str, sources: list[str], *, by_torch: bool) -> None:
        super().__init__(beside, sources[0])
        self.name, self.sources, self.by_torch = name, sources, by_torch

    @cached_property
    def module(self) -> Any:
        folder = self.path.parents[len(Path(self.sources[0]).parts) - 1]
        sources, include = [str(folder / name) for name in self.sources], [str(folder)]
        if self.by_torch:
            from torch.utils.cpp_extension import load

            lines = ["-lineinfo"]
            return load(self.name, sources, extra_include_paths=include, extra_cuda_cflags=lines)
        from tvm_ffi import cpp

        cuda = [path for path in sources if path.endswith(".cu")]
        others = [path for path in sources if path not in cuda]
        return cpp.load(self.name, cpp_files=others, cuda_files=cuda, extra_include_paths=include)


class Library(File):
    """A compiled library with functions of TVM FFI."""

    def loaded(self) -> Any:
        from tvm_ffi import load_module

        return load_module(str(self.path))


class Jitted:
    """A function of CuTe DSL, called with tensors by DLPack and, where it takes a stream, torch's;
    compiled once for the layouts and values of a call.
    """

    def __init__(self, file: File, name: str) -> None:
        self.file, self.name = file, name
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(getattr(self.file, self.name))
        taken = [p for p in signature.parameters.values() if not STREAM.search(str(p))]
        return signature.replace(parameters=taken)

    def __call__(self, *arguments: Any, **keywords: Any) -> None:
        from cuda.bindings.driver import CUstream
        from cutlass import cute
        from cutlass.cute.runtime import from_dlpack

        call = self.__signature__.bind(*arguments, **keywords)
        call.apply_defaults()
        values: Inputs = dict(call.arguments)
        tensors = {name: value for name, value in values.items() if _is_tensor(value)}
        layouts = {name: (t.dtype, t.shape, t.stride()) for name, t in tensors.items()}
        key = tuple({**values, **layouts}.values())
        for name, tensor in tensors.items():
            values[name] = from_dlpack(tensor.detach(), assumed_align=ALIGNED)
        function = getattr(self.file, self.name)
        parameters = inspect.signature(function).parameters
        for name in parameters.keys() - values.keys():
            values[name] = CUstream(torch.cuda.current_stream().cuda_stream)
        if key not in self._compiled:
            self._compiled[key] = cute.compile(function, *(values[name] for name in parameters))
        constant = {name for name, p in parameters.items() if "Constexpr" in str(p.annotation)}
        self._compiled[key](**{n: v for n, v in values.items() if n not in constant})


class Challenge:
    """A class of LeetGPU's form: its inputs for timing, and its reference."""

    def __init__(self, file: File, task: str) -> None:
        self.file, self.task = file, task

    @cached_property
    def made(self) -> Any:
        return getattr(self.file, self.task)()

    def inputs(
        self, names: Sequence[str], outputs: Sequence[str], generator: torch.Generator
    ) -> Inputs:
        """By the names of the function's parameters, or in their order if these are others;
        ``outputs`` are only written, unless its signature has another direction for them.
        """
        ways = self.made.get_solve_signature()
        outputs = [n for n in outputs if not isinstance(ways.get(n), tuple) or ways[n][1] == "out"]

        def make() -> Any:
            values = self.made.generate_performance_test()
            in_order = names if values.keys() >= {*names} else values
            return [_of_spec(values[name]) for name in in_order]

        return uncalled(listed(make, names, generator), outputs, generator)

    def __call__(self, inputs: Inputs) -> Any:
        return call(self.made.reference_impl, inputs)


def _of_spec(value: Any) -> Any:
    """A tensor of what newer challenges describe one by."""
    kind = type(value).__name__
    if not kind.endswith("Tensor") or _is_tensor(value):
        return value
    made = torch.zeros(value.shape, dtype=torch.float32)
    match kind:
        case "RandTensor":
            made.uniform_(value.low, value.high)
        case "RandnTensor":
            made.normal_(value.mean, value.std)
        case "RandIntTensor":
            made.random_(int(value.low), int(value.high))
        case "FullTensor":
            made.fill_(value.value)
    return made.to(getattr(torch, value.dtype))


@cache
def compiled(function: Callable[..., Any]) -> Any:
    return torch.compile(function)


ALIGNED = 16  # bytes: what the widest load takes
STRUCTURE = "structure"  # the input that tells how the others stand together
# Of random integers, as FlashInfer-Bench draws them.
RANGES = {"int8": 128, "uint8": 256, "bool": 2}
LARGEST_INTEGER = 1024
MOST_SEED = 2**31


@dataclass(frozen=True)
class Empty:
    """A tensor that a kernel writes into: made anew for every call, and no input.

    ``make`` allocates it in place of torch.empty_strided.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    make: Callable[[torch.Tensor], torch.Tensor] | None = None

    def new(self) -> torch.Tensor:
        tensor = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return self.make(tensor) if self.make else tensor


class Leaf(str):
    """The place of an input in a structure: its name."""


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Whatever is made inside is fresh, and on the generator's device."""
    torch.manual_seed(generator.initial_seed())
    with torch.device(generator.device):
        yield


def made(call: str, generator: torch.Generator) -> torch.Tensor:
    """A tensor in the grammar of ``--input``: ``randn(4096, 8192, dtype=float16)``."""
    node: Any = ast.parse(call, mode="eval").body
    sizes = [ast.literal_eval(argument) for argument in node.args]
    named = {k.arg: ast.unparse(k.value).strip("'\"") for k in node.keywords}
    dtype = getattr(torch, named["dtype"]) if "dtype" in named else None
    maker = node.func.id
    random = {"generator": generator} if maker in ("randn", "rand", "randint", "randperm") else {}
    # Random numbers of eight bits, and of integers, are drawn wider.
    narrow = maker in ("randn", "rand") and dtype is not None and dtype.itemsize == 1
    try:
        out: torch.Tensor = getattr(torch, maker)(
            *sizes, **random, dtype=None if narrow else dtype, device=generator.device
        )
    except (TypeError, RuntimeError) as error:
        raise UsageError(
            f"'{call}' cannot be made: {str(error).splitlines()[0]}",
            hint="such as randn(4096,8192) or randint(0,100,(4096,),dtype=int32)",
        ) from None
    return out.to(dtype) if narrow else out


def larger(inputs: Inputs) -> Inputs:
    """Four times the floating-point inputs, and the first row of each 32 times: what is right only
    for the numbers that a format draws is found.
    """
    scaled = dict(inputs)
    for name, value in inputs.items():
        if _is_tensor(value) and value.is_floating_point() and value.itemsize > 1:
            scaled[name] = value * 4
            if value.dim():
                scaled[name][:1] *= 8
    return scaled


def drawn(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Random numbers as FlashInfer-Bench's ``_rand_tensor`` draws them."""
    device = generator.device
    if dtype.is_floating_point:
        out = torch.randn(tuple(shape), generator=generator, device=device)
        return (out.clamp_(-2, 2) if dtype.itemsize == 1 else out).to(dtype)
    most = RANGES.get(str(dtype)[6:], LARGEST_INTEGER)
    low = 0 if dtype is torch.bool else -most
    return torch.randint(low, most, tuple(shape), generator=generator, device=device).to(dtype)


def named(values: Any, names: Sequence[str]) -> Inputs:
    """Inputs by name: those of a dict, else by the names of parameters, in their order."""
    if isinstance(values, Mapping):
        return dict(values)
    if not isinstance(values, tuple | list):
        values = (values,)
    if len(values) > len(names):
        names = [f"input_{index}" for index in range(len(values))]
    return dict(zip(names, values, strict=False))


def structured(data: Any, names: Sequence[str]) -> Inputs:
    """The tensors of nested tuples, lists and dicts by name, and how they stand together.

    ``names`` are those of the outermost ones, where they are known.
    """
    leaves: Inputs = {}
    has_names = isinstance(data, tuple | list) and len(data) == len(names)

    def placed(path: Sequence[Any], value: Any) -> Any:
        if not _is_tensor(value):
            return value
        keys = [getattr(key, "idx", getattr(key, "key", key)) for key in path]
        keys = [names[keys[0]], *keys[1:]] if has_names else ["data", *keys]
        name = "_".join(re.sub(r"\W", "_", str(key)) for key in keys)
        leaves[name] = value
        return Leaf(name)

    return {STRUCTURE: torch.utils._pytree.tree_map_with_path(placed, data), **leaves}


def rebuilt(inputs: Inputs) -> Any:
    return torch.utils._pytree.tree_map(
        lambda v: inputs[v] if isinstance(v, Leaf) else v, inputs[STRUCTURE]
    )


def without(inputs: Inputs, destinations: Sequence[str]) -> Inputs:
    """Replace inputs that are only written into: each call makes them anew."""
    return {
        name: Empty(tuple(value.shape), value.stride(), value.dtype, value.device)
        if name in destinations
        else value
        for name, value in inputs.items()
    }


def uncalled(inputs: Inputs, outputs: Sequence[str], generator: torch.Generator) -> Inputs:
    """Replace outputs where there is no GPU: elsewhere a call shows what is only written into."""
    return without(inputs, outputs) if generator.device.type == "cpu" else inputs


def read(inputs: Inputs) -> Inputs:
    """The inputs that are not only written into."""
    return {name: value for name, value in inputs.items() if not isinstance(value, Empty)}


def filled(inputs: Inputs) -> tuple[Inputs, tuple[torch.Tensor, ...]]:
    """The inputs of one call, and those that were made for it."""
    fresh = {name: value.new() for name, value in inputs.items() if isinstance(value, Empty)}
    return {**inputs, **fresh}, tuple(fresh.values())


def listed(make: Callable[[], Any], names: Sequence[str], generator: torch.Generator) -> Inputs:
    """Call ``get_inputs()`` of a KernelBench problem; give the inputs by name, on the generator's
    device.

    It draws from torch's own generator, which is seeded for it.
    """
    with seeded(generator):
        values = named(make(), names)
    return {
        name: value.to(generator.device) if _is_tensor(value) else value
        for name, value in values.items()
    }


def case(generate: Callable[..., Any], shape: Shape, generator: torch.Generator) -> Any:
    """Call ``generate_input()`` of a GPU MODE task for a case; with a seed of its own, where the
    case has one, since every draw must be another.
    """
    # Its references ask for deterministic results, of which cuBLAS gives none without this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    arguments = dict(shape)
    if isinstance(arguments.get("seed"), int):
        arguments["seed"] = (int(arguments["seed"]) + generator.initial_seed()) % MOST_SEED
    with seeded(generator):
        return generate(**arguments)


def workload(
    inputs: Mapping[str, tuple[Sequence[int | str] | None, str]],
    outputs: Mapping[str, tuple[Sequence[int | str] | None, str]],
    shape: Shape,
    generator: torch.Generator,
    beside: str,
) -> Inputs:
    """The inputs of a FlashInfer-Bench definition at a workload, and what it writes into.

    Each is given as its axes, a number or the name of one, None for a plain value, and its type.
    What the shape has under the name of an input is a plain value, or ``file:key`` of safetensors
    in the folder of the module ``beside``.
    """
    device = generator.device

    def sizes(axes: Sequence[int | str] | None) -> list[int]:
        return [int(shape.get(str(axis), axis)) for axis in axes or ()]

    made: Inputs = {}
    for name, (axes, dtype) in inputs.items():
        value: Any = shape.get(name)
        if isinstance(value, str):
            from safetensors.torch import load_file

            path, _, key = value.rpartition(":")
            value = load_file(Path(beside).parent / path)[key].to(device)
        elif value is None:
            tensor = drawn(sizes(axes), getattr(torch, dtype), generator)
            value = tensor.item() if axes is None else tensor
        made[name] = value
    for name, (axes, dtype) in outputs.items():
        made[name] = torch.empty(sizes(axes), dtype=getattr(torch, dtype), device=device)
    return without(made, [*outputs])


_needs_gradients: set[Callable[..., Any]] = set()
_of_cupy: set[Callable[..., Any]] = set()  # functions that take arrays of CuPy


def with_arrays(function: Callable[..., Any], arguments: Iterable[Any], keywords: Inputs) -> Any:
    """Call a function with arrays of CuPy in the memory of the tensors, on torch's stream; what it
    makes has memory of torch, of which a CUDA graph has its own.
    """
    import cupy

    def array(value: Any) -> Any:
        return cupy.asarray(value.detach()) if _is_tensor(value) else value

    def tensor(value: Any) -> Any:
        is_array = isinstance(value, cupy.ndarray)
        return torch.as_tensor(value, device="cuda") if is_array else value

    memory: Any = torch.cuda.memory
    allocator = cupy.cuda.PythonFunctionAllocator(
        memory.caching_allocator_alloc,
        lambda address, _: memory.caching_allocator_delete(address),
    )
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    with stream, cupy.cuda.using_allocator(allocator.malloc):
        named = {name: array(value) for name, value in keywords.items()}
        out = function(*map(array, arguments), **named)
    return torch.utils._pytree.tree_map(tensor, out)


def call(
    function: Callable[..., Any], inputs: Inputs, *, data: bool = False, some: bool = False
) -> Any:
    """Call a function on the inputs: it makes one tensor, or several.

    ``data``: they are its one argument, put together again. ``some``: those that it names, if it
    names all that it takes, else those that it can read, if these are enough. For a function that
    returns nothing, the result is what it was given to write into. Gradients are recorded only for
    an input that requires one, or a function that calls autograd.
    """
    whole, fresh = filled(_named_by(function, inputs) if some else inputs)
    arguments, keywords = ([rebuilt(whole)], {}) if data else bound(function, whole)
    passed = (*arguments, *keywords.values())
    wanted = function in _needs_gradients or any(getattr(v, "requires_grad", 0) for v in passed)
    try:
        with torch.set_grad_enabled(wanted):
            if function in _of_cupy:
                out = with_arrays(function, arguments, keywords)
            else:
                out = function(*arguments, **keywords)
    except (TypeError, AttributeError):
        values = getattr(function, "__globals__", {}).values()
        modules = {value.__name__ for value in values if isinstance(value, ModuleType)}
        if "cupy" not in modules or function in _of_cupy:
            raise
        _of_cupy.add(function)
        return call(function, inputs, data=data, some=some)
    except RuntimeError as error:
        if "does not require grad" not in str(error) or function in _needs_gradients:
            raise
        _needs_gradients.add(function)
        return call(function, inputs, data=data, some=some)
    if isinstance(out, list) and not out:  # TileLang's result where it makes none
        out = None
    return own_results(fresh if out is None and fresh else out, passed)


def own_results(out: Any, inputs: Sequence[Any]) -> Any:
    """Leave out a tuple's plain values and inputs, if tensors of its own are left."""
    if not isinstance(out, tuple | list):
        return out
    memory = {v.untyped_storage().data_ptr() for v in inputs if _is_tensor(v)}
    tensors = [item for item in out if _is_tensor(item)]
    made = [item for item in tensors if item.untyped_storage().data_ptr() not in memory]
    nested = any(isinstance(item, tuple | list | dict) for item in out)
    return only(out if nested else made or tensors or out)


def one(inputs: Inputs, name: str) -> Any:
    """The input that a call of ``--vs`` names. Raises UsageError for what is none."""
    if name not in inputs:
        raise unknown("input in --vs", name, inputs)
    return inputs[name]


def afterwards(inputs: Inputs, out: Any, changed: Sequence[str]) -> Any:
    """Return the results of a call that are no inputs, then the inputs that it ``changed``."""
    if not changed:
        return out
    left = {name: inputs[name] for name in changed}
    if isinstance(out, dict):
        return {**out, **left}
    made = out if isinstance(out, tuple | list) else () if out is None else (out,)
    addresses = {value.data_ptr() for value in inputs.values() if hasattr(value, "data_ptr")}
    return only([*(t for t in made if t.data_ptr() not in addresses), *left.values()])


def only(out: Any) -> Any:
    """One of one, several as a plain tuple; the tensors of a dict stay by name."""
    if not isinstance(out, tuple | list):
        return out
    return out[0] if len(out) == 1 else tuple(out)


def bound(function: Callable[..., Any], inputs: Inputs) -> tuple[list[Any], Inputs]:
    """Positional and keyword arguments of a call with the inputs.

    Inputs go to the parameters of their names. Tensors without one go to the parameters that are
    left, in order; plain values without one only where the function requires another argument.
    Raises UsageError for a tensor that no parameter takes.
    """
    try:
        signature = inspect.signature(function)
        parameters = signature.parameters.values()
    except (TypeError, ValueError):  # a builtin
        return list(inputs.values()), {}
    kinds = {parameter.kind: parameter.name for parameter in parameters}
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    by_name = {p.name: inputs[p.name] for p in named if p.name in inputs}
    rest = {name: value for name, value in inputs.items() if name not in by_name}
    if not by_name and inspect.Parameter.VAR_POSITIONAL in kinds:
        return list(inputs.values()), {}
    if others := kinds.get(inspect.Parameter.VAR_KEYWORD):
        by_name, rest = {**by_name, others: rest}, {}
    unnamed = [p for p in named if p.name not in by_name]
    for parameter in sorted(unnamed, key=lambda p: p.default is not p.empty):
        fits = [n for n, v in rest.items() if parameter.default is parameter.empty or _is_tensor(v)]
        if fits:
            by_name[parameter.name] = rest.pop(fits[0])
    if left := [name for name, value in rest.items() if _is_tensor(value)]:
        raise UsageError(
            f"{getattr(function, '__name__', function)}{signature} takes no '{left[0]}'",
            hint="inputs go to the parameters of their names: rename the input or the parameter",
        )
    call = inspect.BoundArguments(signature, by_name)
    if inspect.Parameter.POSITIONAL_ONLY in kinds:
        call.apply_defaults()
    return list(call.args), call.kwargs


def _named_by(function: Callable[..., Any], inputs: Inputs) -> Inputs:
    parameters = inspect.signature(function).parameters.values()
    required = {p.name for p in parameters if p.default is p.empty}
    named = {p.name: inputs[p.name] for p in parameters if p.name in inputs}
    if named and required <= named.keys():
        return named
    reads = read(inputs)
    return reads if len(required) <= len(reads) else inputs


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


LARGE = 1 << 20  # elements of the inputs


def exact(function: Callable[[Inputs], Any], inputs: Inputs, changed: Sequence[str] = ()) -> Any:
    """A reference in double precision: its inputs are doubles, and where it says float32, so are
    its own. ``changed`` are inputs that belong to the result if it changes them. Large inputs that
    it moves to the CPU stay on the GPU, where it does without: not with numpy, nor with random
    numbers, of which the CPU draws others. Raises whatever it raises that takes no doubles.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Widened(TorchDispatchMode):
        stays = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Else torch imports its compiler, seconds in every process."""
            return False

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            options = dict(kwargs or {})
            if options.get("dtype") is torch.float32:
                options["dtype"] = torch.float64
            if self.stays and torch.Tag.nondeterministic_seeded in func.tags:
                raise NotImplementedError
            if self.stays and "_to_copy" in str(func) and str(options.get("device")) == "cpu":
                options["device"] = args[0].device
            return func(*args, **options)

    def widened(inputs: Inputs) -> Any:
        with Widened():  # type: ignore[no-untyped-call]
            return function(inputs)

    doubles = {name: _double(value) for name, value in inputs.items()}
    sizes = [v.numel() for v in doubles.values() if _is_tensor(v) and v.device.type != "cpu"]
    if sum(sizes) >= LARGE:
        with suppress(Exception):
            return plain(widened, doubles, changed)
    Widened.stays = False
    return plain(widened, doubles, changed)


def plain(function: Callable[[Inputs], Any], inputs: Inputs, changed: Sequence[str] = ()) -> Any:
    """A reference in the precision of its inputs, which it may change; ``changed`` as above."""
    called_with = {name: _copied(value) for name, value in inputs.items()}
    with torch.no_grad():
        out = function(called_with)
    if not any(torch.equal(called_with[name], inputs[name]) for name in changed):
        out = afterwards(called_with, out, changed)
    detached = torch.utils._pytree.tree_map(lambda v: v.detach() if _is_tensor(v) else v, only(out))
    return torch.utils._pytree.tree_map(_double, detached)


def _copied(value: Any) -> Any:
    return value.clone() if _is_tensor(value) else value


def _double(value: Any) -> Any:
    """A tensor in float64; integers and truth values as they are."""
    if isinstance(value, Empty) and value.dtype.is_floating_point:
        return replace(value, dtype=torch.float64, make=None)
    return value.double() if _is_tensor(value) and value.is_floating_point() else value


def accepted(check: Callable[[Any, Any], Any], inputs: Inputs, out: Any) -> str:
    """Why a format's own check refuses an output, "" where it does not."""
    called_with = {n: v.new() if isinstance(v, Empty) else _copied(v) for n, v in inputs.items()}
    result = check(rebuilt(called_with), out)
    good, why = result if isinstance(result, tuple) else (not result, str(result or ""))
    return "" if good else f"check_implementation() refuses it: {why or 'without a reason'}"


def compared(function: Callable[..., Any], inputs: Inputs) -> Any:
    """A function that is known by its name alone, called with the tensors; with ``dim=-1`` where it
    does not do without, and with the plain values where it needs them.
    """
    present = list(read(inputs).values())
    tensors = [value for value in present if _is_tensor(value)]
    refused = []
    for values, keywords in ((tensors, {}), (tensors, {"dim": -1}), (present, {})):
        try:
            with torch.no_grad():
                return only(function(*values, **keywords))
        except TypeError as error:
            refused.append(error)
    raise refused[0]


def by_name(out: Any, names: Sequence[str]) -> Any:
    return only([out[name] for name in names]) if isinstance(out, dict) else out


def put(inputs: Inputs, names: Sequence[str], out: Any) -> Any:
    """A reference's last results where what is tried leaves its own: in the inputs that it changes.
    Returns the results before them; all of a reference that changes these inputs itself.
    """
    results = list(out) if isinstance(out, tuple | list) else [out]
    pairs = [*zip([inputs[name] for name in names], results[-len(names) :], strict=False)]
    if len(pairs) < len(names) or any(getattr(b, "shape", None) != a.shape for a, b in pairs):
        return out
    for target, result in pairs:
        if result.data_ptr() != target.data_ptr():
            target.copy_(result)
    return only(results[: -len(names)]) if len(results) > len(names) else None


MODEL_SEED = 42  # that of the benchmark, ``eval_kernel_against_ref``


class Network:
    """The ``Model`` of a problem, or the ``ModelNew`` of ``new``, and another one of the same
    parameters in float64: made at their first call, on the device of its tensors.
    """

    def __init__(self, file: File, new: File | None = None, *, compiled: bool = False) -> None:
        self.file, self.new, self.is_compiled = file, new, compiled
        self._made: dict[bool, Any] = {}

    def __call__(self, inputs: Inputs) -> Any:
        with torch.no_grad():
            return only(self.of(inputs.values(), exact=False)(*inputs.values()))

    def double(self, inputs: Inputs) -> Any:
        return self.of(inputs.values(), exact=True)(*inputs.values())

    def of(self, arguments: Iterable[Any], *, exact: bool) -> Any:
        if exact not in self._made:
            tensors = [v for v in arguments if isinstance(v, torch.Tensor | Empty)]
            device = tensors[0].device if tensors else torch.device("cuda")
            with same_draws(), device:
                model = self.made().to(device)
            self._made[exact] = model.double() if exact else model
        return self._made[exact]

    def made(self) -> Any:
        model = self.model("Model", self.file)
        if self.new is not None:
            state, model = model.state_dict(), self.model("ModelNew", self.new)
            shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
            if shapes == {name: tensor.shape for name, tensor in state.items()}:
                model.load_state_dict(state)
        return torch.compile(model) if self.is_compiled else model

    def model(self, name: str, file: File) -> Any:
        torch.manual_seed(MODEL_SEED)
        init: list[Any] = getattr(self.file.module, "get_init_inputs", list)()
        torch.manual_seed(MODEL_SEED)
        made = getattr(file, name)(*init)
        if not isinstance(made, torch.nn.Module):
            raise UsageError(f"{file.path.name}: {name} is no torch.nn.Module")
        return made


class Layer(Network):
    """A torch.nn.Module of a user's file; for inputs in float64 the other one."""

    def __init__(self, file: File, name: str, settings: Mapping[str, object]) -> None:
        super().__init__(file)
        self.name, self.settings = name, dict(settings)

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(getattr(self.file, self.name).forward)
        return signature.replace(parameters=[*signature.parameters.values()][1:])

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        every = (*arguments, *keywords.values())
        exact = any(v.dtype == torch.float64 for v in every if _is_tensor(v))
        return self.of(every, exact=exact)(*arguments, **keywords)

    def made(self) -> Any:
        torch.manual_seed(MODEL_SEED)
        return getattr(self.file, self.name)(**self.settings)


def ranges_of(tree: ast.Module, node: ast.FunctionDef) -> dict[str, list[ast.stmt]]:
    """The statements of each range of a function by its name: of ``with nsight.annotate("name")``,
    or of a call of a function that this decorates.
    """

    def names(nodes: Iterable[ast.expr]) -> list[str]:
        calls = [n for n in nodes if isinstance(n, ast.Call) and n.args]
        calls = [n for n in calls if ast.unparse(n.func) in ("nsight.annotate", "annotate")]
        return [str(n.args[0].value) for n in calls if isinstance(n.args[0], ast.Constant)]

    decorated = {name: names(f.decorator_list) for name, f in functions(tree).items()}
    ranges: dict[str, list[ast.stmt]] = {}
    for line in node.body:
        if isinstance(line, ast.With):
            ranges |= dict.fromkeys(names(item.context_expr for item in line.items), line.body)
        elif isinstance(line, ast.Assign | ast.Expr) and isinstance(line.value, ast.Call):
            called = decorated.get(ast.unparse(line.value.func), [])
            ranges |= {name: [line] for name in called[:1]}
    return ranges


class Annotated(File):
    """A ``function`` of a file, its ranges callable each by itself."""

    def __init__(self, beside: str, name: str, function: str) -> None:
        super().__init__(beside, name)
        self.function = function

    def loaded(self) -> ModuleType:
        """With a stand-in for nsight, which would start ncu: decorators and ranges do nothing."""
        from unittest.mock import MagicMock

        class StandIn(MagicMock):
            def __call__(self, *arguments: Any, **keywords: Any) -> Any:
                is_decorator = len(arguments) == 1 and callable(arguments[0])
                return arguments[0] if is_decorator else self

        sys.modules["nsight"] = StandIn()
        return super().loaded()

    def setup(self, shape: Shape, generator: torch.Generator) -> Inputs:
        """All that stands before the first range binds."""
        arguments = {
            name: getattr(torch, str(value)[6:]) if str(value).startswith("torch.") else value
            for name, value in shape.items()
        }
        called = inspect.signature(getattr(self, self.function)).bind(**arguments)
        called.apply_defaults()
        before = {**vars(self.module), **called.arguments}
        with seeded(generator):
            exec(self._codes[""][0], space := dict(before))
        changed = {name: v for name, v in space.items() if v is not before.get(name, self)}
        return {**called.arguments, **changed}

    def range(self, name: str, inputs: Inputs) -> Any:
        """The tensors that a range binds, or writes into."""
        whole, fresh = filled(inputs)
        code, names = self._codes[name]
        with torch.no_grad():
            exec(code, space := {**vars(self.module), **whole})
        bound = (space.get(name) for name in names)
        tensors = tuple(value for value in bound if _is_tensor(value))
        return only(tensors or fresh) if tensors or fresh else None

    @cached_property
    def _codes(self) -> dict[str, tuple[CodeType, list[str]]]:
        """Each range by its name, with what it binds; the statements before them as ""."""
        tree = ast.parse(self.path.read_text(encoding="utf-8"), filename=str(self.path))
        node = functions(tree)[self.function]
        ranges = ranges_of(tree, node)
        first = min(body[0].lineno for body in ranges.values())
        ranges[""] = [line for line in node.body if (line.end_lineno or 0) < first]
        codes = {}
        for name, body in ranges.items():
            if name and isinstance(last := body[-1], ast.Expr):  # a bare call at its end is bound
                result = ast.Assign([ast.Name(f"_{OWN}result", ast.Store())], last.value)
                body = [*body[:-1], ast.copy_location(result, last)]
            module = ast.fix_missing_locations(ast.Module(body, []))
            codes[name] = compile(module, str(self.path), "exec"), _bound(body)
        return codes


def _bound(body: list[ast.stmt]) -> list[str]:
    names = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Name)]
    return list(dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Store)))
