"""What sources mean, without comments, docstrings and the lines on which they stand.

Sources that mean the same need not even be compiled. And two commits whose kernels are the same to
the GPU may still launch them otherwise: what Python does counts as well.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Mapping

from workbench.study.model import Study, Variant
from workbench.study.sources import CODE, source_files
from workbench.study.text import readable_text

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# A string, a character, or a comment of C++, whichever begins first.
_TOKEN = re.compile(
    r""" "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)""",
    re.DOTALL | re.VERBOSE,
)


def meaning_of_c(text: str) -> str:
    """C++ without comments and blank lines; what has raw strings stays as it is."""
    if 'R"' in text:
        return text
    code = _TOKEN.sub(lambda match: " " if match["comment"] else match[0], text)
    return "\n".join(line for each in code.splitlines() if (line := each.strip()))


def meaning(text: str) -> str:
    """Python without what it does not run; text that is no Python stays as it is."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def host_digest(study: Study, variant: Variant, compiled: Mapping[str, str]) -> str:
    """sha256 over what a variant's files mean beside its kernels.

    ``compiled`` are the sources whose machine code is known, and what stands for each: they and the
    headers are not read. A source that something else compiles counts as it is written, with all
    headers.
    """
    files = source_files(study, variant)
    written = [p for p in files if p.suffix in CODE and p.suffix != ".py"]
    if all(p.name in compiled for p in written if p.suffix == ".cu") and compiled:
        written = []
    digest = hashlib.sha256(repr(variant.params).encode())
    for path in sorted(files):
        if path.suffix == ".py":
            text = meaning(readable_text(path))
            for name, known in compiled.items():
                text = text.replace(f"value={name!r}", f"source={known}")
            told = text.encode()
        elif path.suffix in CODE and path not in written:
            continue
        else:
            told = path.read_bytes()
        digest.update(path.name.encode() + b"\0" + told + b"\0")
    return digest.hexdigest()


def plain_digest(study: Study, variant: Variant) -> str:
    """sha256 over what all files of a variant mean."""
    digest = hashlib.sha256(repr(variant.params).encode())
    for path in sorted(source_files(study, variant)):
        if path.suffix == ".py":
            told = meaning(readable_text(path)).encode()
        elif path.suffix in CODE:
            told = meaning_of_c(readable_text(path)).encode()
        else:
            told = path.read_bytes()
        digest.update(path.name.encode() + b"\0" + told + b"\0")
    return digest.hexdigest()


def study_digest(study: Study) -> str:
    """sha256 over what study.py means, shapes included: another one is another way to measure."""
    text = readable_text(study.folder / "study.py")
    return hashlib.sha256(meaning(text).encode()).hexdigest()
