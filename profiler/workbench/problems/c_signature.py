"""The parameters of a function of C or CUDA as text: their types, and what misfits them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword

from workbench.errors import UsageError
from workbench.problems import try_options

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


def plain_parameters(text: str) -> str:
    """The parameters as a pointer to the function has them: without what they are by default."""
    return ", ".join(one.text.partition("=")[0].strip() for one in parameters_of(text))


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


def require_fit(
    function: str, parameters: str, arguments: Sequence[str], made: Mapping[str, try_options.Made]
) -> None:
    """Raises UsageError where arguments are too few or many, or one cannot be passed."""
    wanted = parameters_of(parameters)
    least = sum(not one.has_default for one in wanted)
    listed = f"its parameters are {', '.join(one.text for one in wanted)}"
    if not least <= len(arguments) <= len(wanted):
        what = f"{function} takes {len(wanted)} arguments, --launch gives {len(arguments)}"
        raise UsageError(what, hint=listed)
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
            raise UsageError(f"{argument} of {function} {wrong}", hint=hint)


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
