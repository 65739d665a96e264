"""What is compiled from C++: a ``.cu`` file with the launch of a kernel, or with a function of the
host, and a library with functions of TVM FFI.

nvcc compiles a function of the host, such as ``extern "C" void solve(const float* in, float* out,
int n)``, and ctypes calls it with the tensors' addresses. ``challenge.py`` beside it, as LeetGPU
has it, gives inputs and reference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from pathlib import Path

from workbench import bounds
from workbench.cuda.compiler import PROGRAM
from workbench.cuda.programs import Entry, entries, expand_includes, items, launches, masked
from workbench.errors import UsageError, unknown
from workbench.problems import try_options
from workbench.problems.problem import Format, Module, Problem, Request, calling
from workbench.problems.python_function import CHALLENGE, USUAL, challenge_of
from workbench.problems.user_files import gathered, literal, one_of
from workbench.study.files import readable_text, require_readable

_WORDS = re.compile(
    r"\b(?:(?:const|volatile|struct|__restrict__|__restrict|restrict|__grid_constant__|unsigned|"
    r"signed)\b|(?:std|at|c10)::)"
)
_I32, _I64 = 2**31, 2**63
NOT_NAMED = try_options.Made("", None)  # an argument that is computed
SIDE, ELEMENTS = 1024, 1024 * 1024  # of the tensors in hints
# By C's name: of a number its ctypes with its least and largest value, of a tensor its dtype.
NUMBERS = {
    "int": ("c_int", -_I32, _I32 - 1),
    "int32_t": ("c_int", -_I32, _I32 - 1),
    "unsigned": ("c_uint", 0, 2 * _I32 - 1),
    "uint32_t": ("c_uint", 0, 2 * _I32 - 1),
    "short": ("c_short", -(2**15), 2**15 - 1),
    "bool": ("c_bool", 0, 1),
    "size_t": ("c_size_t", 0, 2 * _I64 - 1),
    "uint64_t": ("c_uint64", 0, 2 * _I64 - 1),
    "int64_t": ("c_int64", -_I64, _I64 - 1),
    "long": ("c_int64", -_I64, _I64 - 1),
    "float": ("c_float", 0, 0),
    "double": ("c_double", 0, 0),
}
TENSORS = {
    **dict.fromkeys(("float", "float2", "float4"), "float32"),
    **dict.fromkeys(("double", "double2"), "float64"),
    **dict.fromkeys(("half", "__half", "half2", "__half2", "Half"), "float16"),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162", "BFloat16"), "bfloat16"),
    **dict.fromkeys(("int", "int32_t"), "int32"),
    **dict.fromkeys(("unsigned", "uint32_t"), "int32"),  # torch has few operators for uint32
    **dict.fromkeys(("long", "int64_t", "uint64_t"), "int64"),
    **dict.fromkeys(("unsigned char", "uint8_t", "uchar"), "uint8"),
}


MARK = "__global__"
SOURCES, MOST = ("*.cu", "*.cuh", "*/*.cu", "*/*.cuh"), 8  # that a hint looks at, and names
WHOLE = {*NUMBERS} - {"float", "double", "bool"}


def read_cuda_file(request: Request) -> Problem:
    """Raises UsageError where launch, inputs, outputs or reference are missing or misfit."""
    path = request.source
    require_readable(path, bounds.SOURCE)
    source, files = gathered(path)
    included: set[Path] = set()
    text = expand_includes(path, included, "replace")
    kernels = entries(text) or entries(readable_text(path))  # a header may be no C++
    if not kernels:
        raise UsageError(
            f"{path.name} has no __global__ function", hint=_with_kernels(path, text, included)
        )
    inputs = [try_options.read_input(option) for option in request.inputs]
    if not request.launch:
        first = next(iter(kernels))
        entry = _named(request.function or first, kernels, path)
        raise UsageError(
            f"{path.name} needs --launch: how {entry.name}({entry.parameters}) is launched",
            hint=_how_to_launch(path, entry, text),
        )
    if not inputs:
        raise UsageError(
            f"{path.name} needs --input for what its kernel reads",
            hint="--input 'x=randn(4096,8192)' for a tensor, --input 'n=8192' for a value; "
            "where it reads nothing, any value will do",
        )
    made = {one.name: one for one in inputs}
    outputs = []
    for option in request.outputs:
        outputs.append(try_options.read_output(option, made))
        made[outputs[-1].name] = outputs[-1]
    launched, extents, arguments = try_options.read_launch(request.launch, made)
    bare, angle, instance = launched.partition("<")
    kernel = _named(bare.strip(), kernels, path)
    called = f"{kernel.name}{angle}{instance}"
    if kernel.template is not None and not angle:
        raise UsageError(
            f"{called} is a template of {kernel.template}, and --launch names no instance",
            hint=f"such as --launch '{called}<...><<<grid, block>>>(...)'",
        )
    if kernel.template is None:
        kernel = _that_fits(path, kernel, arguments, made)
    if not request.versus or request.versus == try_options.COMPILE:
        raise UsageError(
            f"{path.name} needs --vs: nothing says what {kernel.name} should compute",
            hint="such as --vs 'torch.softmax(x, dim=-1)', or --vs FILE.py:FUNCTION",
        )
    if kernel.template is None and not kernel.c_linkage:
        called = f"::{called}"
        if kernel.is_one_of_several:
            types = ", ".join(one.text for one in parameters_of(kernel.parameters))
            called = f"(void (*)({types}))&{called}"
    call = f"[{extents}]({', '.join(arguments)})"
    problem = Problem(
        what=f"{path.name}, {FORMAT.label}: its kernel {launched}",
        name=kernel.name.rpartition("::")[2],
        title=f"{launched} of {path.name}",
        files=files,
        shapes=try_options.asked_shape(inputs),
        made=try_options.made_text(inputs),
        baseline=Module(
            "baseline",
            f"{path.name}:{launched}",
            _module(source, kernel, called, [one.name for one in inputs], outputs, call),
        ),
        compiles=True,
    )
    return try_options.with_references(problem, request)


def _with_kernels(path: Path, text: str, included: Collection[Path]) -> str:
    """Return what to try in place of a file without kernels: those beside it, below it or beside
    what it includes that define some. At first those whose kernels its ``text`` launches, then
    those of others that it names, then those that include it.
    """
    folders = {path.parent, *(one.parent for one in included)}
    sources = {one for folder in folders for end in SOURCES for one in folder.glob(end)}
    texts = {
        os.path.relpath(one, path.parent): readable_text(one)
        for one in sorted(sources)
        if one.is_file() and one.stat().st_size < bounds.FILE
    }
    kernels = {name: _bare(entries(other)) for name, other in texts.items() if MARK in other}
    others = [name for name, defined in kernels.items() if defined]
    if not others:
        whole = _whole_program(path, text)
        return f"the whole program: {whole}" if whole else "name a file with one"
    called = _bare(name for name, _ in launches(text))
    words = {*re.findall(r"\w+", masked(text))}
    ranks = (
        [name for name in others if kernels[name] & called],
        [name for name in others if kernels[name] & words],
        [name for name in others if f'"{path.name}"' in texts[name]],
        others,
    )
    return f"name the file with one: {', '.join(next(filter(None, ranks))[:MOST])}"


def _bare(names: Iterable[str]) -> set[str]:
    """Names without their namespaces."""
    return {name.rpartition("::")[2] for name in names}


def _named(name: str, kernels: Mapping[str, Entry], path: Path) -> Entry:
    """Find a kernel by its name, with its namespaces or without. Raises UsageError."""
    name = name.removeprefix("::")
    fits = [entry for full, entry in kernels.items() if name in (full, full.rpartition("::")[2])]
    if not fits:
        raise unknown(f"kernel of {path.name}", name, kernels)
    return next((entry for entry in fits if entry.name == name), fits[0])


def _that_fits(
    path: Path, kernel: Entry, arguments: Sequence[str], made: Mapping[str, try_options.Made]
) -> Entry:
    """The one of its name that takes the arguments. Raises UsageError for none, or several."""
    every = (kernel.parameters, *kernel.overloads)
    misfits = {text: _misfit(kernel.name, text, arguments, made) for text in every}
    fitting = [parameters for parameters, misfit in misfits.items() if misfit is None]
    if not fitting and (misfit := misfits[kernel.parameters]):
        raise misfit
    if len(fitting) > 1:
        listed = "; ".join(f"({one})" for one in fitting)
        raise UsageError(
            f"{path.name} has several kernels {kernel.name} that take these: {listed}",
            hint="give the one that you try another name",
        )
    return replace(kernel, parameters=fitting[0])


def _misfit(
    function: str, parameters: str, arguments: Sequence[str], made: Mapping[str, try_options.Made]
) -> UsageError | None:
    """The error of arguments that are too few or many, or of one that cannot be passed."""
    wanted = parameters_of(parameters)
    least = sum(not one.has_default for one in wanted)
    listed = f"its parameters are {', '.join(one.text for one in wanted)}"
    if not least <= len(arguments) <= len(wanted):
        what = f"{function} takes {len(wanted)} arguments, --launch gives {len(arguments)}"
        return UsageError(what, hint=listed)
    for parameter, argument in zip(wanted, arguments, strict=False):
        passed, needed = made.get(argument, NOT_NAMED), TENSORS.get(parameter.type)
        dtype, value = passed.dtype, passed.value
        _, lowest, most = NUMBERS.get(parameter.type, ("", 0, 0))
        wrong, hint = "", listed
        if dtype and not parameter.is_pointer and parameter.type in NUMBERS:
            wrong = f"is a tensor, and its parameter is {parameter.text}"
        elif dtype and needed and dtype != needed and dtype in TENSORS.values():
            wrong = f"is {dtype}, and its parameter {parameter.text} reads {needed}"
            hint = f"dtype={needed} in --input or --output"
        elif value is not None and parameter.is_pointer:
            wrong = f"is a number, and its parameter is {parameter.text}"
        elif isinstance(value, int) and most and not lowest <= value <= most:
            wrong = f"is {value}, and {parameter.text} holds {lowest} to {most}"
            hint = "take a smaller number, or a wider type in the kernel"
        if wrong:
            return UsageError(f"{argument} of {function} {wrong}", hint=hint)
    return None


def _how_to_launch(path: Path, entry: Entry, text: str) -> str:
    """The options that this kernel needs; with a ``main()``, also how the program is profiled."""
    wanted = parameters_of(entry.parameters)
    sizes = [one.name for one in wanted if one.type in WHOLE and not one.is_pointer]
    size = sizes[0] if len(sizes) == 1 else str(ELEMENTS)
    names = ", ".join(one.name for one in wanted)
    instance = "" if entry.template is None else "<...>"
    bare = entry.name.rpartition("::")[2]
    launch = f"{bare}{instance}<<<cdiv({size}, 256), 256>>>({names})"
    hint = as_options(bare, wanted, launch)
    calls = [whole for name, whole in launches(text) if name.rpartition("::")[2] == bare]
    if calls:
        hint += f"\n      the file launches it as {calls[0]}: write its sizes as numbers or inputs"
    if whole := _whole_program(path, text):
        hint += f"\n      or the whole program: {whole}"
    return hint


def _whole_program(path: Path, text: str) -> str:
    """Return how a file with a ``main()`` is profiled, "" for one without."""
    if not re.search(r"\bmain\s*\(", text):
        return ""
    compiled = f"nvcc -O3 -lineinfo -o {path.stem} {path.name}"
    return f"{compiled} && workbench profile -- ./{path.stem}"


def _module(
    source: str,
    entry: Entry,
    kernel: str,
    inputs: Sequence[str],
    outputs: Sequence[try_options.Made],
    call: str,
) -> str:
    made = "".join(f"    {output.name} = {output.call}\n" for output in outputs)
    names = [output.name for output in outputs]
    launched = "kernel" if "kernel" not in (*inputs, *names) else "launched"
    back = f"    return {', '.join(names)}\n" if outputs else ""
    more = ", cooperative=True" * entry.waits_for_grid
    return f"""import torch
from workbench import cuda

{launched} = cuda.kernel("{source}", "{kernel}", compiler="{PROGRAM}"{more})


def cdiv(a, b):
    return -(-a // b)


def run({", ".join(inputs)}):
{made}    {launched}{call}
{back}"""


ALLOCATES = re.compile(r"\bcuda(?:Malloc|Free)(?!\w*Async)\w*\s*\(")


def host_functions(text: str) -> dict[str, str]:
    """The parameters of every function of C in a file, by its name."""
    hosts = (i for i in items(text) if i.is_function and i.c_linkage and "__" not in i.head)
    parts = (item.head.partition("(") for item in hosts)
    return {b.split()[-1].lstrip("*"): after.rpartition(")")[0] for b, _, after in parts}


def has_host_function(request: Request) -> bool:
    """Whether a function of C is named, or one of the usual name is there to be tried."""
    if request.source.suffix not in (".cu", ".cuh") or request.launch:
        return False
    require_readable(request.source, bounds.SOURCE)
    hosts = host_functions(readable_text(request.source))
    return any(name in hosts for name in ([request.function] if request.function else USUAL))


def read_host_function(request: Request) -> Problem:
    """Raises UsageError where an input is missing, or of a type that ctypes has not."""
    path, hosts = request.source, host_functions(readable_text(request.source))
    function = request.function or next(name for name in USUAL if name in hosts)
    wanted = parameters_of(hosts[function])
    for one in wanted:
        if not one.ctype:
            raise UsageError(
                f"{function} of {path.name} takes {one.text}, which is no pointer and no number",
                hint="name a function of pointers and numbers, or a kernel with --launch",
            )
    names = [one.name for one in wanted]
    by_name = {made.name: made for made in map(try_options.read_input, request.inputs)}
    # A function whose every tensor may be written changes them in place.
    reads = any(one.is_read_only for one in wanted if one.is_pointer)
    outputs = [one.name for one in wanted if reads and one.is_pointer and not one.is_read_only]
    source, files = gathered(path)
    binding = f"{path.stem}_{function}.py"
    allocates = ALLOCATES.search(masked(readable_text(path))) is not None
    files[binding] = _binding(source, function, wanted, allocates).encode()
    loads = f'_given = given.File(__file__, "{binding}")'
    call = f"given.call(_given.{function}, inputs)"
    challenge = None if by_name else challenge_of(path, names, outputs)
    if challenge is not None:
        made, theirs = challenge.made, [challenge]
    else:
        if missing := [name for name in names if name not in by_name]:
            raise UsageError(
                f"{path.name} has no {CHALLENGE} beside it, and no --input gives "
                f"{', '.join(missing)} of {function}()",
                hint=as_options(function, wanted, ""),
            )
        if extra := [name for name in by_name if name not in names]:
            raise unknown(f"parameter of {function}()", extra[0], names)
        made = try_options.made_text([by_name[name] for name in names])
        made, theirs = f"given.uncalled({made}, {literal(outputs)}, generator)", []
    if not theirs and not request.versus:
        raise UsageError(
            f"{path.name} needs --vs: nothing says what {function} should compute",
            hint=as_versus(wanted),
        )
    problem = Problem(
        what=f"{path.name}, {HOST_FUNCTION.label}: {function}({', '.join(names)})",
        name=path.stem if function in USUAL else function,
        title=f"{function} of {path.name}",
        files=files,
        shapes=try_options.asked_shape(by_name.values()),
        loads=challenge.loads if challenge else "",
        made=made,
        baseline=calling(f"{path.name}:{function}", loads, call),
    )
    return try_options.with_references(problem, request, theirs)


def _binding(source: str, function: str, wanted: Sequence[CParameter], allocates: bool) -> str:
    """A module in Python that compiles the file and calls the function. One that allocates memory
    is not called in a capture: cudaMalloc fails there, and cudaFree then gets what the pointer was
    in the call before, which may be torch's memory by now.
    """
    refusal = """    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("no CUDA graph can capture it: it allocates memory")
"""
    kinds = "".join(f"    ctypes.{one.ctype},\n" for one in wanted)
    library = re.sub(r"\W", "_", f"{function}_of_{Path(source).stem}")
    return f'''"""{function}() of {source}, called by ctypes."""

import ctypes
from pathlib import Path

import torch
from torch.utils.cpp_extension import load

_library = ctypes.CDLL(
    load(
        "{library}",
        [str(Path(__file__).parent / "{source}")],
        extra_cuda_cflags=["-O3", "-lineinfo"],
        is_python_module=False,
    )
)


_kinds = (
{kinds})


def {function}(*arguments):
{refusal * allocates}    passed = (a.data_ptr() if hasattr(a, "data_ptr") else a for a in arguments)
    _library.{function}(*(kind(a) for kind, a in zip(_kinds, passed, strict=True)))
'''


EXPORTED = re.compile(rb"\0__tvm_ffi_(?!_)(\w+)(?=\0)")


def functions_of(path: Path) -> list[str]:
    """The functions that a library exports, without loading it."""
    if not re.search(r"\.so(\.\d+)*$", path.name):
        return []
    require_readable(path, bounds.BESIDE)
    return sorted({name.decode() for name in EXPORTED.findall(path.read_bytes())})


def read_library(request: Request) -> Problem:
    """Raises UsageError where the function, its inputs or a reference is not named."""
    path, names = request.source, functions_of(request.source)
    function = one_of(path, "function", names, request.function)
    made = [try_options.read_input(text) for text in request.inputs]
    if not made or not request.versus:
        raise UsageError(
            f"{path.name} needs --input for what {function} takes, in order, its outputs among "
            "them, and --vs",
            hint="--input 'x=randn(4096)' --input 'out=zeros(4096)' --vs FILE.py:FUNCTION, of x",
        )
    problem = Problem(
        what=f"{path.name}, {LIBRARY.label}: its function {function}",
        name=function,
        title=f"{function} of {path.name}",
        files={path.name: path.read_bytes()},
        shapes=try_options.asked_shape(made),
        made=try_options.made_text(made),
        baseline=calling(
            f"{path.name}:{function}",
            f'_given = given.Library(__file__, "{path.name}")',
            f"given.call(_given.{function}, inputs)",
        ),
    )
    return try_options.with_references(problem, request)


@dataclass(frozen=True)
class CParameter:
    """``type`` is without ``const`` and its like, ``text`` as it stands in the source."""

    name: str
    type: str
    is_pointer: bool
    is_read_only: bool
    text: str
    has_default: bool

    @property
    def ctype(self) -> str:
        """The name that ctypes has for it, "" for none."""
        return "c_void_p" if self.is_pointer else NUMBERS.get(self.type, ("",))[0]


def parameters_of(text: str) -> list[CParameter]:
    parts, depth, start = [], 0, 0
    text = "" if text.strip() == "void" else text
    for place, letter in enumerate(text):
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [_parameter(" ".join(part.split())) for part in (*parts, text[start:]) if part.strip()]


def _parameter(text: str) -> CParameter:
    whole, equals, _ = text.partition("=")
    is_unsigned = re.search(r"\bunsigned\b", whole) is not None
    bare = _WORDS.sub(" ", whole)
    words = re.findall(r"[\w:]+(?:<.*>)?", bare.partition("[")[0])
    plain = [word for word in words if word != "int"] if len(words) > 2 else words
    name = plain[-1] if len(words) > 1 or is_unsigned else ""
    name = f"{name}_" if iskeyword(name) else name
    kind = plain[0] if len(plain) > 1 else "int"
    if is_unsigned:
        kind = {"int": "unsigned", "long": "uint64_t"}.get(kind, f"unsigned {kind}")
    return CParameter(
        name,
        kind,
        "*" in whole or "[" in whole,
        re.search(r"\bconst\b", whole.partition("*")[0]) is not None,
        whole.strip(),
        bool(equals),
    )


def as_options(function: str, wanted: Sequence[CParameter], launch: str) -> str:
    """An example of the options that a function of these parameters needs."""
    written = {one.name for one in outputs_of(wanted)} if launch else set()
    whole = sum(not one.is_pointer and one.type in NUMBERS for one in wanted)
    first = next((one.name for one in wanted if one.is_pointer and one.name not in written), "")
    parts = [f"--launch '{launch}'"] if launch else []
    for one in wanted:
        dtype = TENSORS.get(one.type, "float32")
        kind = "" if dtype == "float32" else f",dtype={dtype}"
        if one.name in written:
            like = next((w.type for w in wanted if w.name == first), "") == one.type
            shape = f"empty_like({first})" if like else f"empty({ELEMENTS}{kind})"
            parts.append(f"--output '{one.name}={shape}'")
        elif one.is_pointer:
            integer = dtype.startswith(("int", "uint"))
            made = f"randint(0,100,({ELEMENTS},){kind})" if integer else f"randn({ELEMENTS}{kind})"
            zeros = not launch and not one.is_read_only
            parts.append(f"--input '{one.name}={f'zeros({ELEMENTS}{kind})' if zeros else made}'")
        elif one.type in NUMBERS:
            real = one.type in ("float", "double")
            parts.append(f"--input {one.name}={1.0 if real else ELEMENTS if whole < 2 else SIDE}")
    return " ".join([*parts, as_versus(wanted)])


def outputs_of(wanted: Sequence[CParameter]) -> list[CParameter]:
    """The pointers that a kernel writes through: those to what is not const; without any const,
    those that are called so, else the last of several.
    """
    pointers = [one for one in wanted if one.is_pointer]
    if any(one.is_read_only for one in pointers):
        return [one for one in pointers if not one.is_read_only]
    called_so = [one for one in pointers[1:] if re.search("out|res|dst|dest", one.name, re.I)]
    return called_so or pointers[1:][-1:]


def as_versus(wanted: Sequence[CParameter]) -> str:
    """An example of ``--vs``, with the tensors that are read."""
    written = {one.name for one in outputs_of(wanted)}
    read = ", ".join(one.name for one in wanted if one.is_pointer and one.name not in written)
    return f"--vs FILE.py:FUNCTION{', of ' if read else ''}{read}"


FORMAT = Format(
    label="a CUDA source",
    files=".cu or .cuh",
    priority=10,
    is_of=lambda request: request.source.suffix in (".cu", ".cuh"),
    read=read_cuda_file,
    options=frozenset({"inputs", "launch", "outputs"}),
)
HOST_FUNCTION = Format(
    label="a function of C",
    files='.cu with extern "C" void solve(...)',
    priority=20,
    is_of=has_host_function,
    read=read_host_function,
    options=frozenset({"inputs"}),
)
LIBRARY = Format(
    label="a library of TVM FFI",
    files=".so",
    priority=10,
    is_of=lambda request: bool(functions_of(request.source)),
    read=read_library,
    options=frozenset({"inputs"}),
)
