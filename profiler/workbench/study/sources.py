"""Tie evidence to sources: the files of a variant, their fingerprint, and what they mean."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from workbench import bounds
from workbench.cuda.programs import virtual_name as virtual_name
from workbench.cuda.programs import within
from workbench.study.files import no_file, read_text, readable_text, require_readable
from workbench.study.front_ends import syntax_tree
from workbench.study.model import Study, Variant
from workbench.words import VIRTUAL_ROOT as VIRTUAL_ROOT
from workbench.words import Parameter

# To be raised where the same sources would be measured otherwise: how a call is timed, checked or
# captured. Evidence of an older harness is then stale, as that of older sources is.
HARNESS = 2
# Variables that nvcc and torch's extensions take options from, and calls in Python that use nvcc.
COMPILING = (
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    *("TORCH_CUDA_ARCH_LIST", "TVM_FFI_CUDA_ARCH_LIST"),
)
_NVCC = re.compile(rb"cpp_extension|given\.Extension|compiler\s*=\s*[\"'](?:program|nvcc)")
CODE = (".py", ".cu", ".cuh", ".h", ".hpp")  # shown as text, and searched for further names
# From every quotation mark on: one that ends a string may stand before one that begins another.
_NAMED_SOURCE = re.compile(r"""(?=["']([^"'\\\n]+\.\w+)["'])""")
_NAMED_VARIANT = re.compile(r"""\bcuda\.variant\(\s*["'](\w+)["']""")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_included = lru_cache(maxsize=256)(_INCLUDE.findall)


def source_files(study: Study, variant: Variant) -> list[Path]:
    """The variant's module, the files of its study that it names in a string and, through them,
    what they include. A file that it opens all the same is refused by the worker: see ``opened``.

    Those of the variants that it calls are among them. What lies outside of the study's folder is
    no source of it, and refused when the variant is built.
    """
    return named_from(study.folder, variant.module.name)


@lru_cache(maxsize=256)  # variants share most of their files
def _named(text: str) -> list[str]:
    """Files that a module names in strings, those of variants that it calls among them."""
    variants = _NAMED_VARIANT.findall(text)
    return [*_NAMED_SOURCE.findall(text), *(f"{variant}.py" for variant in variants)]


def named_from(folder: Path, first: str) -> list[Path]:
    """A file and all that it names, and those name."""
    files: dict[Path, None] = {}
    queue = [(first, False)]
    while queue:
        name, is_included = queue.pop(0)
        path = folder / name
        if path in files or not within(folder, name) or no_file(path):
            continue
        require_readable(path, bounds.SOURCE)
        files[path] = None
        if path.suffix == ".py":
            queue += [(named_file, False) for named_file in _named(readable_text(path))]
        elif is_included or path.suffix in CODE:
            beside = Path(name).parent  # as the compiler looks for them
            named = _included(readable_text(path))
            queue += [(os.path.normpath(beside / named_file), True) for named_file in named]
    return list(files)


@lru_cache(maxsize=8)
def _study_code(text: str) -> str:
    """The study without its list of shapes: adding a shape leaves the others' evidence valid."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        if names and names[0] in ("shapes", "default_shape"):
            place = slice(node.lineno - 1, node.end_lineno)
            lines[place] = [""] * len(lines[place])
    return "\n".join(line.rstrip() for line in lines if line.strip())


def compiling_variables() -> dict[str, str]:
    """Those of this process's environment, which is the user's: workers have one of their own."""
    return {name: value for name in COMPILING if (value := os.environ.get(name, "").strip())}


class Fingerprints:
    """The fingerprints of one study's variants; code and sources are read once."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._sources = cache(self._hashed)
        self._at_shape = cache(self._hashed_at)

    @cached_property
    def _code(self) -> bytes:
        code = _study_code(read_text(self.study.folder / "study.py")).encode()
        _, *named = named_from(self.study.folder, "study.py")
        return code + b"".join(path.read_bytes() for path in sorted(named))

    def _hashed(self, variant: str) -> hashlib._Hash:
        digest = hashlib.sha256()
        described = self.study.variants[variant]
        files = {p: p.read_bytes() for p in sorted(source_files(self.study, described))}
        for path, content in files.items():
            digest.update(path.name.encode() + b"\0" + content + b"\0")
        if (variables := compiling_variables()) and any(map(_NVCC.search, files.values())):
            digest.update(json.dumps(variables).encode())
        if described.params:
            digest.update(json.dumps(described.params).encode())
        return digest

    def _hashed_at(self, variant: str, parameters: str) -> str:
        digest = self._sources(variant).copy()
        digest.update(self._code + parameters.encode() + f"harness {HARNESS}".encode())
        return digest.hexdigest()

    def at_shape(self, variant: str, parameters: Mapping[str, Parameter]) -> str:
        """Hash a variant's sources, the study's code, the shape's parameters and the harness."""
        return self._at_shape(variant, json.dumps(parameters, sort_keys=True))

    def of_sources(self, variant: str) -> str:
        """sha256 over the variant's own sources alone: what a build depends on."""
        return self._sources(variant).hexdigest()


def source_texts(study: Study, variant: Variant) -> dict[str, str]:
    """The variant's sources by the name they have in the line table of a capture."""
    return {
        virtual_name(path.parent.name, path.name): readable_text(path)
        for path in source_files(study, variant)
        if path.suffix in CODE
    }


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
    return "\n".join(line for code_line in code.splitlines() if (line := code_line.strip()))


@lru_cache(maxsize=64)  # mostly the same at both commits that are compared
def meaning(text: str) -> str:
    """Python without what it does not run; text that is no Python stays as it is."""
    tree = syntax_tree(text)
    if tree is None:
        return text
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return _dumped(tree)


def _dumped(node: Any) -> str:
    """Dump a tree like ``ast.dump``, the same in every version of Python: fields that newer ones
    added are empty where the code runs on older ones.
    """
    if isinstance(node, ast.AST):
        fields = (f"{n}={_dumped(v)}" for n, v in ast.iter_fields(node) if v not in (None, []))
        return f"{type(node).__name__}({', '.join(fields)})"
    return f"[{', '.join(map(_dumped, node))}]" if isinstance(node, list) else repr(node)


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

    def content(path: Path) -> bytes | None:
        if path.suffix == ".py":
            text = meaning(readable_text(path))
            for name, digest in compiled.items():
                text = text.replace(f"value={name!r}", f"source={digest}")
            return text.encode()
        return None if path.suffix in CODE and path not in written else path.read_bytes()

    return _digest(variant, files, content)


def plain_digest(study: Study, variant: Variant) -> str:
    return _digest(variant, source_files(study, variant), _meant)


def _meant(path: Path) -> bytes:
    if path.suffix not in CODE:
        return path.read_bytes()
    read = meaning if path.suffix == ".py" else meaning_of_c
    return read(readable_text(path)).encode()


def _digest(
    variant: Variant | None, files: Iterable[Path], content_of: Callable[[Path], bytes | None]
) -> str:
    """Hash the parameters of a variant and the content of each file, if it has any."""
    digest = hashlib.sha256(repr(variant.params).encode() if variant else b"")
    for path in sorted(files):
        if (content := content_of(path)) is not None:
            digest.update(path.name.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()


def study_digest(study: Study, *, shapes: bool = True) -> str:
    """sha256 over what study.py and the files that it names mean, ``shapes`` of it included or not:
    another one is another way to measure.
    """

    def content(path: Path) -> bytes:
        if shapes or path.name != "study.py":
            return _meant(path)
        return meaning(_study_code(readable_text(path))).encode()

    return _digest(None, named_from(study.folder, "study.py"), content)
