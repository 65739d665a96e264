"""A function of the host in a ``.cu`` file, such as ``extern "C" void solve(const float* in, float*
out, int n)``: nvcc compiles the file, and ctypes calls the function with the tensors' addresses.

``challenge.py`` beside it, as LeetGPU has it, gives inputs and reference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workbench import bounds
from workbench.cuda.programs import Item, items, masked
from workbench.errors import UsageError, unknown
from workbench.problems import try_options
from workbench.problems.c_signature import CParameter, as_options, as_versus, parameters_of
from workbench.problems.problem import Format, Problem, Request, calling
from workbench.problems.python_function import CHALLENGE, USUAL, challenge_of
from workbench.problems.user_files import gathered, literal
from workbench.study.files import readable_text, require_readable

ALLOCATES = re.compile(r"\bcuda(?:Malloc|Free)(?!\w*Async)\w*\s*\(")


def host_functions(text: str) -> dict[str, str]:
    """The parameters of every function of C in a file, by its name."""

    def named(item: Item) -> tuple[str, str]:
        before, _, after = item.head.partition("(")
        return before.split()[-1].lstrip("*"), after.rpartition(")")[0]

    hosts = (i for i in items(text) if i.is_function and i.c_linkage and "__" not in i.head)
    return dict(map(named, hosts))


def is_of(request: Request) -> bool:
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
        what=f"{path.name}, {FORMAT.label}: {function}({', '.join(names)})",
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


FORMAT = Format(
    label="a function of C",
    files='.cu with extern "C" void solve(...)',
    priority=20,
    is_of=is_of,
    read=read_host_function,
    options=frozenset({"inputs"}),
)
