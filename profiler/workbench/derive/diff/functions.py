"""Which top-level function each line of a source belongs to. Pure."""

from __future__ import annotations

import re

from workbench.derive.diff.alignment import Source

_NAME = re.compile(r"([A-Za-z_~]\w*)\s*(?:<[^;{}]*>)?\s*\(")
_QUALIFIER = re.compile(
    r"__launch_bounds__|__cluster_dims__|__maxnreg__|__attribute__|__declspec|alignas|__align__"
    r"|requires|decltype|noexcept|if|for|while|switch"
)
_PYTHON_NAME = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)")


def functions(text: Source, *, python: bool = False) -> list[str]:
    """For each line the top-level function it belongs to; "" outside of any."""
    return _python_functions(text) if python else _c_functions(text)


def _python_functions(text: Source) -> list[str]:
    names, now = [], ""
    for line, code in zip(text.lines, text.code, strict=True):
        if code and not line[:1].isspace() and not code.startswith((")", "]", "}")):
            match = _PYTHON_NAME.match(code)
            now = match[1] if match else ""
        names.append(now)
    return names


def _c_functions(text: Source) -> list[str]:
    names = [""] * len(text.lines)
    header, start, depth, inside, opened = "", 0, 0, "", 0
    macro = False
    for number, code in enumerate(text.code):
        macro, skip = (macro or code.startswith("#")) and code.endswith("\\"), macro
        if skip or code.startswith("#"):
            names[number] = inside
            continue
        for character in re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', '""', code) + " ":
            if not inside and not header.strip():
                start = number
            if character == "{":
                if not inside:
                    name = _function_name(header)
                    if name:
                        inside, opened = name, depth
                        names[start:number] = [name] * (number - start)
                    header = ""
                depth += 1
            elif character == "}":
                depth = max(0, depth - 1)
                if inside and depth == opened:
                    names[number], inside = inside, ""
                header = ""
            elif character == ";" and not inside:
                header = ""
            elif not inside:
                header += character
        if inside:
            names[number] = inside
    return names


def _function_name(header: str) -> str:
    candidates = (match[1] for match in _NAME.finditer(header))
    return next((name for name in candidates if not _QUALIFIER.fullmatch(name)), "")
