"""A Python file with a function and tensors.

``inputs()`` in the file gives a dict, or a tuple in the order of the parameters; its own parameters
with defaults are those of the shape. ``reference`` in the file is what the function is compared
with where ``--vs`` names nothing else.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import EnvironmentLacks, UsageError, nearest, unknown
from workbench.problems import try_options
from workbench.problems.problem import Format, Module, Problem, Request, calling
from workbench.problems.user_files import bound, classes, functions, gathered, literal, parsed
from workbench.study.files import stands
from workbench.study.front_ends import (
    CUTE,
    STREAM,
    TILELANG,
    how_to_install,
    imports_of,
    is_kernel,
    launched,
    marked,
    parameters,
    required_parameters,
)
from workbench.words import Parameter

INPUTS, REFERENCE = "inputs", "reference"
NOT_TRIED = (INPUTS, REFERENCE, "main", "test")
FILE = "_given"
USUAL = ("solve", "solution")  # of LeetGPU and of Tensara
CHALLENGE, CHALLENGE_BASE = "challenge.py", "core/challenge_base.py"  # of LeetGPU
STAND_IN = b"""class ChallengeBase:
    def __init__(self, *arguments, device="cuda", **keywords):
        self.device = device
        vars(self).update(keywords)
"""
LOADING = ("load_inline", "load_module", "load", "build")  # of torch and tvm-ffi
WITH_TORCH = ("triton",)  # a part of torch's builds for a GPU
MEASURING = ("test", "bench", "main", "profile", "verify")  # begins what measures a function


def read_python_function(request: Request) -> Problem:
    """Raises UsageError for a file without a function or inputs, or with several functions, and
    EnvironmentLacks if it also imports what is not installed.
    """
    try:
        return _read(request)
    except UsageError as error:
        if not request.elsewhere:
            require_imports(request.source, f"; then {error.hint}" if error.hint else "")
        raise


def require_imports(path: Path, then: str) -> None:
    """Raises EnvironmentLacks for the first import at the top of a file that nothing provides."""
    beside = {p.stem for folder in (path.parent, *path.parents[:3]) for p in folder.glob("*")}
    for level, name, _ in imports_of(parsed(path).body):
        first = name.partition(".")[0]
        local = [path.parents[level - 1] / end for end in (first, f"{first}.py") if level and name]
        if local and not any(map(stands, local)):
            raise EnvironmentLacks(
                f"{path.name} imports .{name}, which is not there",
                hint=f"build the package first: what it builds is .{name}{then}",
            )
        is_here = first in (*beside, *WITH_TORCH, *sys.modules)
        if not (level or is_here or find_spec(first)):
            raise EnvironmentLacks(
                f"{path.name} imports {name}, which is not installed here",
                hint=f"{how_to_install(name)}{then}",
            )


def _read(request: Request) -> Problem:
    path = request.source
    tree = parsed(path)
    made = [try_options.read_input(text) for text in request.inputs]
    has_inputs = INPUTS in functions(tree)
    function, challenge = request.function, None
    if not (made or has_inputs or function):
        function = next((name for name in USUAL if name in functions(tree)), "")
    function = pick(path, tree, function)
    node, constructor = functions(tree).get(function), None
    applied = {name: of for of, name in applies(tree).items()}.get(function, function)
    in_class = classes(tree).get(applied.partition(".")[0])
    if in_class is not None:
        node, constructor = called_of(in_class, tree)
    if node is not None and marked(node, CUTE):
        without_stream(path, node)
    names = parameters(node) if node else []
    if function in USUAL and not (made or has_inputs):
        challenge = challenge_of(path, names)
    defaults = own_parameters(path, functions(tree)[INPUTS]) if has_inputs else {}
    taken = [item for item in made if item.name not in defaults]
    settings: dict[str, Parameter | None] = {}
    if constructor is not None:
        settable = {*parameters(constructor)} - {*names}
        settings = {item.name: item.value for item in taken if item.name in settable}
        taken = [item for item in taken if item.name not in settings]
        if missing := [n for n in required_parameters(constructor) if n not in settings]:
            raise UsageError(
                f"{path.name}:{function} needs {', '.join(missing)} of its constructor",
                hint=" ".join(f"--input {name}=64" for name in missing),
            )
    taken.sort(key=lambda item: names.index(item.name) if item.name in names else len(names))
    if challenge is None:
        require_inputs(path, function, node, [item.name for item in taken], defaults, has_inputs)
    inside, files = gathered(path)
    arguments = f", {literal(request.arguments)}" if request.arguments else ""
    file = f'given.File(__file__, "{inside}"{arguments})'
    load, target = f"{FILE} = {file}", f"{FILE}.{function}"
    if constructor is not None:
        load += f"\n_layer = given.Layer({FILE}, {literal(function)}, {literal(settings)})"
        target = "_layer"
    elif node is not None and marked(node, CUTE):
        load += f"\n_jitted = given.Jitted({FILE}, {literal(function)})"
        target = "_jitted"
    elif node is not None and marked(node, TILELANG):
        target += ".__call__"  # which can be hashed
    call = f"given.call({target}, inputs)"
    call_compiled = f"given.call(given.compiled({target}), inputs)"
    compiled = calling(f"torch.compile of {function}", load, call_compiled, name="")
    call_reference = f"given.call(_versus.{REFERENCE}, inputs, some=True)"
    theirs = calling(f"{path.name}:{REFERENCE}", f"_versus = {file}", call_reference, name="")
    has_own = REFERENCE in functions(tree) and not request.versus
    drawn = ", ".join(f"{name}=shape[{literal(name)}]" for name in defaults)
    drawn = f"given.named({FILE}.{INPUTS}({drawn}), {literal(names)})" if has_inputs else "{}"
    drawn += f" | {try_options.made_text(taken)}" if taken else ""
    shown = f"its function {function}({', '.join(names)})"
    problem = Problem(
        what=f"{path.name}, {FORMAT.label}: {shown}",
        name=function,
        title=f"{function} of {path.name}",
        files=files,
        shapes=try_options.asked_shape(made, defaults),
        loads=f"{load}\n{challenge.loads}" if challenge else load,
        made=challenge.made if challenge else drawn,
        expression=call,
        baseline=calling(f"{path.name}:{function}", load, call),
        itself=True,
    )
    references = [challenge] if challenge else [theirs] if has_own else []
    return try_options.with_references(problem, request, references, compiled)


def pick(path: Path, tree: ast.Module, wanted: str) -> str:
    defined = functions(tree)
    called = [
        name
        for name, node in defined.items()
        if not name.startswith("_") and name not in NOT_TRIED and not is_kernel(node)
    ]
    candidates = [name for name in called if not marked(defined[name], CUTE, TILELANG)]
    if all(name.startswith(MEASURING) for name in candidates):
        candidates = called
    if wanted:
        return named(path, tree, wanted, candidates)
    of_torch = [
        applies(tree).get(f"{name}.apply", name)
        for name, node in classes(tree).items()
        if any(kind in kinds_of(node, tree) for kind in ("Module", "autograd.Function"))
    ]
    tried = [name for name in candidates if not name.startswith(MEASURING)]
    launching = [name for name in tried if _launches(defined[name])]
    for names in (candidates, launching):
        if len(names) == 1:
            return names[0]
    if len(of_torch) == 1 and not candidates:
        return named(path, tree, of_torch[0], candidates)
    ordered = sorted(candidates, key=lambda name: name in tried)
    given_something = [name for name in ordered if parameters(defined[name])]
    if several := launching or given_something or ordered or of_torch:
        what, single = ("functions", "function") if candidates else ("classes", "class")
        raise UsageError(
            f"{path.name} has several {what}: {', '.join(candidates or of_torch)}",
            hint=f"name a {single}: {path.name}:{several[-1]}",
        )
    if kernels := [node for node in defined.values() if is_kernel(node)]:
        raise UsageError(
            f"{path.name} has no function that launches its kernels",
            hint=launched(path.name, kernels[-1]),
        )
    for node in loaded(ast.walk(tree)):
        target = ast.unparse(node.targets[0])
        hint = f"name its function: {path.name}:{target}.FUNCTION"
        if node not in tree.body:
            hint = f"{wrapped(path, f'{target}.FUNCTION')}, with {target} made outside of main()"
        raise UsageError(
            f"{path.name} defines no function to try; line {node.lineno} loads {target}", hint=hint
        )
    raise UsageError(
        f"{path.name} defines no function to try",
        hint="a function of tensors; or a KernelBench problem's Model with get_inputs()",
    )


def applies(tree: ast.Module) -> dict[str, str]:
    """The names that the top of a file gives to the ``apply`` of a class: ``f = F.apply``."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    names = {ast.unparse(node.value): ast.unparse(node.targets[0]) for node in assigned}
    with_forward = (
        f"{name}.apply"
        for name, node in classes(tree).items()
        if any(getattr(inner, "name", "") == "forward" for inner in node.body)
    )
    return {value: names[value] for value in with_forward if value in names}


def loaded(nodes: Iterable[ast.AST]) -> Iterator[ast.Assign]:
    """The assignments of a module of functions that torch or TVM FFI loads."""
    for node in nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func).rpartition(".")[2] in LOADING:
            yield node


def named(path: Path, tree: ast.Module, wanted: str, candidates: Sequence[str]) -> str:
    """Return how the module calls what was ``wanted``. Raises UsageError for what it cannot."""
    kernel = functions(tree).get(wanted)
    if kernel is not None and is_kernel(kernel):
        other = f"name that function: {', '.join(candidates)}" if candidates else ""
        raise UsageError(
            f"{path.name}:{wanted} is a kernel, which a function of Python launches",
            hint=other or launched(path.name, kernel),
        )
    name, _, attribute = wanted.partition(".")
    if attribute and name in (ast.unparse(node.targets[0]) for node in loaded(tree.body)):
        return wanted
    if name in classes(tree) and attribute in ("", "apply", "forward"):
        kinds = kinds_of(classes(tree)[name], tree)
        if "Function" in kinds:
            return f"{name}.apply"
        if "Module" in kinds and attribute != "apply":
            return name
    if name in classes(tree) or (name in bound(tree) and attribute):
        raise UsageError(
            f"{path.name}:{wanted} is no function of the file", hint=wrapped(path, wanted)
        )
    if wanted not in bound(tree):
        raise unknown(f"function of {path.name}", wanted, candidates)
    return wanted


def _launches(node: ast.FunctionDef) -> bool:
    """Whether a function has a launch: ``kernel[grid](...)``, or ``kernel(...).launch(...)``."""
    calls = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any(isinstance(f, ast.Subscript) or getattr(f, "attr", "") == "launch" for f in calls)


def wrapped(path: Path, name: str) -> str:
    """Return what to write where the file has an attribute in place of a function."""
    return (
        f"add a function that calls it, and try {path.name}:run\n"
        f"    def run(x):\n        return {name}(x)"
    )


def lineage(node: ast.ClassDef, tree: ast.Module) -> list[ast.ClassDef]:
    """A class, and those of the same file that it is derived from."""
    line = [node]
    for derived in line:
        bases = (classes(tree).get(ast.unparse(base)) for base in derived.bases)
        line += [base for base in bases if base and base not in line]
    return line


def kinds_of(node: ast.ClassDef, tree: ast.Module) -> str:
    return " ".join(ast.unparse(base) for each in lineage(node, tree) for base in each.bases)


def called_of(
    node: ast.ClassDef, tree: ast.Module
) -> tuple[ast.FunctionDef, ast.FunctionDef | None]:
    """What a call of a torch.nn.Module or an autograd.Function takes, and the constructor of the
    former, both without self or ctx; a class of the same file may have them for it. Raises
    UsageError for a class without forward().
    """
    empty = ast.parse("def __init__(self): ...").body
    bodies = (*empty, *(item for derived in lineage(node, tree)[::-1] for item in derived.body))
    methods = {item.name: item for item in bodies if isinstance(item, ast.FunctionDef)}
    if "forward" not in methods:
        raise UsageError(f"{node.name} has no forward()", hint="name a class that has one")
    is_module = "Function" not in kinds_of(node, tree)
    for method in (methods["forward"], methods["__init__"]):
        without = method.name == "forward" and "setup_context" in methods  # which takes ctx
        del (method.args.posonlyargs or method.args.args)[: 0 if without else 1]
    return methods["forward"], methods["__init__"] if is_module else None


def without_stream(path: Path, node: ast.FunctionDef) -> None:
    """Take out the parameter for a stream, which a call is given. Raises UsageError for a function
    that launches without one: CUDA's default stream cannot be captured.
    """
    taken = [a for a in node.args.args if not STREAM.search(ast.unparse(a))]
    if taken == node.args.args and _launches(node):
        raise UsageError(
            f"{path.name}:{node.lineno}: {node.name}() takes no stream to launch on",
            hint=f"def {node.name}(..., stream), and .launch(..., stream=stream): torch's is given",
        )
    node.args.args = taken


def require_inputs(
    path: Path,
    function: str,
    node: ast.FunctionDef | None,
    names: Sequence[str],
    defaults: Iterable[str],
    has_inputs: bool,
) -> None:
    """Raises UsageError where a parameter has no value, or a value no parameter, of the function or
    among the ``defaults`` of its ``inputs()``.
    """
    accepted = parameters(node) if node else list(names)
    is_open = node is None or node.args.kwarg is not None or node.args.vararg is not None
    missing = [n for n in (required_parameters(node) if node else []) if n not in names]
    if not accepted and not is_open and not has_inputs:
        raise UsageError(
            f"{function}() of {path.name} takes no tensors",
            hint=f"the whole program: workbench profile -- python {path.name}; or name a function "
            "of tensors",
        )
    if not has_inputs and (not names or (missing and not is_open)):
        wanted = missing or accepted
        first = (wanted or ["x"])[0]
        raise UsageError(
            f"{path.name} has no inputs() and no --input gives "
            f"{', '.join(wanted) or 'its tensors'} of {function}()",
            hint=f"--input '{first}=randn(4096,8192)' for a tensor of {function}(), "
            f"--input '{first}=8192' for a value, or a function inputs() in the file",
        )
    wrong = [name for name in names if name not in accepted]
    if wrong and not is_open:
        also = f" or of {INPUTS}()" if has_inputs else ""
        raise UsageError(
            f"--input gives '{wrong[0]}', which is no parameter of {function}(){also}",
            hint=nearest(wrong[0], [*accepted, *defaults]),
        )


def challenge_of(
    solution: Path, names: Sequence[str], outputs: Sequence[str] = ()
) -> Module | None:
    """The reference, with inputs, that LeetGPU's ``challenge.py`` beside a solution has: a class.
    It is of a function with these parameters, of which ``outputs`` are written.

    None where there is no such file. Raises UsageError for one without a class that gives tests.
    """
    path = solution.with_name(CHALLENGE)
    if not path.is_file():
        return None
    nodes = classes(parsed(path)).items()
    by_name = {name: {getattr(line, "name", "") for line in node.body} for name, node in nodes}
    task = next((name for name, inside in by_name.items() if "reference_impl" in inside), None)
    if task is None:
        hint = "give the inputs with --input and the reference with --vs"
        raise UsageError(f"{path} has no class with reference_impl()", hint=hint)
    base = next((p / CHALLENGE_BASE for p in path.parents if (p / CHALLENGE_BASE).is_file()), None)
    stand_in = {CHALLENGE_BASE: base.read_bytes() if base else STAND_IN, "core/__init__.py": b""}
    inside, files = gathered(path)
    load = f'_challenge = given.Challenge(given.File(__file__, "{inside}"), "{task}")'
    made = f"_challenge.inputs({literal(names)}, {literal(outputs)}, generator)"
    module = calling(f"{CHALLENGE}:{task}", load, "_challenge(inputs)", name="")
    return replace(module, files=files | stand_in, made=made)


def own_parameters(path: Path, node: ast.FunctionDef) -> dict[str, Parameter]:
    """Read the shape from the defaults of ``inputs(rows=4096)``."""
    names, defaults = parameters(node), [*node.args.defaults, *node.args.kw_defaults]
    values = dict(
        zip(reversed(names), map(try_options.plain_value, reversed(defaults)), strict=False)
    )
    shape = {name: value for name in names if (value := values.get(name)) is not None}
    if lacking := [name for name in names if name not in shape]:
        raise UsageError(
            f"{path}:{node.lineno}: the default of '{lacking[0]}' in inputs() is no number or text",
            hint="such as def inputs(rows=4096): the defaults are the shape that is tried",
        )
    return shape


FORMAT = Format(
    label="a Python function",
    files=".py with inputs(), or --input",
    priority=10,
    is_of=lambda request: request.source.suffix == ".py",
    read=read_python_function,
    options=frozenset({"arguments", "inputs"}),
)
