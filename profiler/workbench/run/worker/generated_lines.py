"""Lines of code that Helion generates: those of the user's file, which its comments name.

Helion writes Triton, and over each statement the line of the user's file that it came from:
``# src[mine.py:12]: ...``. Between Triton's compiler and LLVM's (``triton_lines``), locations in
such code are replaced by these. Runs in the worker; the code that is generated stays as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

Origin = tuple[str, int]  # name of a file, line
ENTRY = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)$", re.MULTILINE)
FIELD = re.compile(r'(\w+): (?:!(\d+)|"([^"]*)")')
COMMENT = re.compile(r"^\s*# src\[([^\]:]+\.py):(\d+)")


def origins(text: str) -> dict[int, Origin]:
    """By line of generated code, where it came from: of several comments in a row the first."""
    found: dict[int, Origin] = {}
    now: Origin | None = None
    above = False  # whether the line above is such a comment
    for number, line in enumerate(text.splitlines(), 1):
        if told := COMMENT.match(line):
            now = now if above and now else (told[1], int(told[2]))
        elif line and not line[0].isspace():
            now = None
        elif now and line.strip():
            found[number] = now
        above = told is not None
    return found


@lru_cache(maxsize=64)
def origins_of(path: Path) -> dict[int, Origin]:
    """Of what cannot be read none."""
    try:
        return origins(path.read_text(errors="replace"))
    except OSError:
        return {}


def lines_of_origin(code: str, sources: Path) -> str:
    """LLVM's text with the locations in generated code replaced by those of files below
    ``sources`` that it came from.
    """
    entries = {number: (kind, body) for number, kind, body in ENTRY.findall(code)}
    fields: dict[str, dict[str, str]] = {
        number: {key: ref or text for key, ref, text in FIELD.findall(body)}
        for number, (_, body) in entries.items()
    }

    def path_of(number: str) -> Path:
        file = fields.get(fields[number].get("file", ""), {})
        return Path(file.get("directory", "")) / file.get("filename", "")

    def subprogram(number: str) -> str:
        while number in entries and entries[number][0] != "DISubprogram":
            number = fields[number].get("scope", "")
        return number

    added: list[str] = []
    scopes: dict[tuple[str, str], str] = {}
    free = max(map(int, entries), default=0) + 1

    def scope_in(function: str, name: str) -> str:
        """A scope of a function in another file; "" where there is no such file."""
        nonlocal free
        if (function, name) not in scopes:
            path = next(iter(sorted(sources.glob(f"*/{name}"))), None)
            if path is None:
                scopes[function, name] = ""
            else:
                file = f'!DIFile(filename: "{path.name}", directory: "{path.parent}")'
                block = f"!DILexicalBlockFile(scope: !{function}, file: !{free}, discriminator: 0)"
                added.extend([f"!{free} = {file}", f"!{free + 1} = distinct {block}"])
                scopes[function, name] = str(free + 1)
                free += 2
        return scopes[function, name]

    def replaced(match: re.Match[str]) -> str:
        number, kind, body = match.groups()
        scope = fields[number].get("scope", "")
        line = re.search(r"\bline: (\d+)", body)
        if kind != "DILocation" or scope not in entries or line is None:
            return match[0]
        origin = origins_of(path_of(scope)).get(int(line[1]))
        place = scope_in(subprogram(scope), origin[0]) if origin else ""
        if origin is None or not place:
            return match[0]
        told = body.replace(line[0], f"line: {origin[1]}").replace(
            f"scope: !{scope}", f"scope: !{place}"
        )
        return match[0].replace(body, told)

    text = ENTRY.sub(replaced, code)
    return text.rstrip("\n") + "\n" + "\n".join(added) + "\n" if added else text
