"""Compiles a kernel with NVRTC through cuda-core, or with nvcc, and reads what these and ptxas
report.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.children import ended
from workbench.cuda import programs
from workbench.cuda.cubin import code_digests, pointed_at
from workbench.cuda.programs import CompileError, expand_includes, header_folders, virtual_name
from workbench.errors import EnvironmentLacks, nearest
from workbench.words import INSTALL, Parameter


@dataclass(frozen=True)
class KernelBuild:
    """One kernel as ptxas reports it; sizes in bytes, registers per thread.

    ``code`` is the sha256 of its machine code (see ``cubin``); "" if it is not launched.
    ``compiler`` is named where it need not be NVRTC.
    """

    kernel: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    code: str = ""
    compiler: str = ""


_SIZES = ("registers", "shared_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
# ptxas calls it information when it waits after every wgmma, which costs a third of the speed.
_WARNING = re.compile(r"\bwarning\b|potential performance loss", re.IGNORECASE)


def parse_log(log: str) -> tuple[list[KernelBuild], list[str]]:
    """Resources per entry function, and the warnings, from an NVRTC and ptxas ``-v`` log."""
    entries: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    entry = function = ""
    for line in log.splitlines():
        if _WARNING.search(line):
            warnings.append(" ".join(line.split()))
        elif match := _ENTRY.search(line):
            entry = match[1]
            entries[entry] = {}
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif (match := _STACK.search(line)) and function in entries:
            numbers = map(int, match.groups())
            entries[function].update(zip(_SIZES[2:], numbers, strict=True))
        elif (match := _REGISTERS.search(line)) and entry:
            shared = _SHARED.search(line)
            entries[entry]["registers"] = int(match[1])
            entries[entry]["shared_bytes"] = int(shared[1]) if shared else 0
    # What the log does not name is zero.
    builds = [KernelBuild(name, **{**dict.fromkeys(_SIZES, 0), **e}) for name, e in entries.items()]
    return builds, warnings


NVRTC, NVCC, PROGRAM = "nvrtc", "nvcc", "program"  # see ``cuda.kernel``
STANDARD_OPTIONS = ("--warn-on-spills", "--warn-on-local-memory-usage", "-v")
CUBIN_FOLDER = "WORKBENCH_CUBINS"
KEPT_AS = 5  # how a kept cubin is written
CUBINS = "*.build.json"  # in that folder


@dataclass(frozen=True)
class Compiled:
    arch: str
    kernels: tuple[KernelBuild, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class KeptBuild:
    """A build as the workers of one measurement pass it on: data, and nothing in it runs."""

    report: Compiled
    symbols: dict[str, str]
    cubin: bytes


def arch_of(major: int, minor: int) -> str:
    """Name the architecture of a compute capability: ``sm_90a`` has all that Hopper has."""
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


@dataclass(eq=False)
class Source:
    """A kernel ``name`` in a file, compiled with these macros and these options of ptxas.

    One that ``must_wait`` is refused where it has no ``griddepcontrol.wait``: started early, it
    would read what the kernel ahead of it has not yet written. ``compiler`` is as in
    ``cuda.kernel``.
    """

    path: Path
    name: str
    defines: Mapping[str, Parameter]
    options: tuple[str, ...]
    must_wait: bool = False
    compiler: str = NVRTC

    def compile(self, arch: str) -> tuple[Compiled, Any]:
        """Compile for ``arch`` (such as ``sm_90a``); needs NVRTC but no GPU.

        Returns the compiler's report and the cuda-core object code. Raises CompileError with the
        compiler's own message, or for one that starts early and never waits, and EnvironmentLacks
        without cuda-core or its headers.
        """
        text = expand_includes(self.path)
        settings = [*(("waits",) if self.must_wait else ()), *self._toolchain]
        kept = kept_cubin(text, arch, self.defines, self.options, self.name, *settings)
        if kept is not None and kept.is_file() and (restored := _restore(kept)):
            return restored
        report, code = self._compile(text, arch)
        if kept is not None:
            import msgspec  # not where it is doctor that tells what is missing

            symbols = {name: symbol.decode() for name, symbol in dict(code.symbol_mapping).items()}
            whole = msgspec.json.encode(KeptBuild(report, symbols, bytes(code.code)))
            unfinished = kept.with_suffix(f".{os.getpid()}")  # another process may be reading it
            with suppress(OSError):  # it only saves time
                unfinished.write_bytes(whole)
                unfinished.replace(kept)
            with suppress(OSError):
                unfinished.unlink()
        return report, code

    @property
    def shown_defines(self) -> str:
        """The macros in words: ``D=64 WARPS=4``."""
        return " ".join(f"{key}={value}" for key, value in self.defines.items())

    @property
    def _toolchain(self) -> tuple[str, ...]:
        """Name the compilers and headers that a build depends on where NVRTC is not all."""
        return () if self.compiler == NVRTC else (self.compiler, os.path.realpath(find_nvcc()))

    @property
    def _virtual_name(self) -> str:
        return virtual_name(self.path.parent.name, self.path.name)

    def _compile(self, text: str, arch: str) -> tuple[Compiled, Any]:
        """A program is compiled by nvcc, and by NVRTC where nvcc is not installed or fails itself:
        whole if possible, else its device code.
        """
        if self.compiler == NVRTC:
            return self._by_nvrtc(text, arch)
        tool, why = find_nvcc(), ""
        if self.compiler == NVCC and not tool:
            raise EnvironmentLacks(
                f"{self.path.name} asks for nvcc, and nvcc with a host compiler was not found",
                hint="install the CUDA toolkit and g++, or leave compiler= out: NVRTC",
            )
        name = self._virtual_name
        try:
            if tool:
                by_nvcc = partial(self._by_nvcc, tool, arch=arch)
                return self._noting(*programs.compiled(f'#line 1 "{name}"\n{text}', by_nvcc))
        except NvccFails as error:
            if self.compiler == NVCC:
                raise self._error(arch, str(error)) from None
            why = f"{str(error).strip()}\n"
        try:
            by_nvrtc = partial(self._by_nvrtc, arch=arch)
            return self._noting(*programs.compiled(programs.for_nvrtc(text, name), by_nvrtc))
        except CompileError as error:
            raise CompileError(why + error.message, hint=error.hint, log=error.log) from error

    def _by_nvcc(self, tool: str, text: str, arch: str) -> tuple[Compiled, Any]:
        """Compile a text in which the kernel is an ``extern "C"`` name or a name expression, whose
        template is instantiated then, such as a cast to a pointer that tells overloads apart.

        Raises CompileError, and NvccFails where nvcc itself does not work.
        """
        from cuda.core import ObjectCode

        is_plain = self.name.isidentifier()
        if not is_plain:
            value = self.name if self.name[0] == "(" else f"&{self.name}"
            text += f"\n__device__ auto {ENTRY} = {value};\n"
        folders = header_folders(named_only=True)
        command = [
            *(tool, *NVCC_FLAGS, f"-arch={arch}"),
            *(f"-D{name}={value}" for name, value in self.defines.items()),
            *(part for folder in folders for part in ("-isystem", folder)),
            *(part for o in (*STANDARD_OPTIONS, *self.options) for part in ("-Xptxas", o)),
            *("-o", CUBIN, SOURCE),
        ]
        with tempfile.TemporaryDirectory(prefix="workbench-nvcc-") as folder:
            Path(folder, SOURCE).write_text(text, encoding="utf-8")
            exit_code, log = ran(command, folder)
            if exit_code is None or (exit_code and not log):
                raise NvccFails(f"nvcc fatal: {log or exit_code}")
            if exit_code:
                is_broken = re.search(r"^nvcc fatal", log, re.MULTILINE) is not None
                raise NvccFails(log) if is_broken else self._error(arch, log)
            cubin = Path(folder, CUBIN).read_bytes()
        symbol = self.name if is_plain else pointed_at(cubin, ENTRY)
        code = ObjectCode.from_cubin(cubin, symbol_mapping={self.name: symbol.encode()})
        return self._report(arch, log, cubin, symbol, nvcc_version(tool)), code

    def _error(self, arch: str, log: str) -> CompileError:
        """Quote the diagnostics in a compiler's log, without ptxas' resource lines."""
        lines = (line.strip("\0") for line in log.splitlines() if line.strip("\0 "))
        infos = ("ptxas info", "bytes stack frame")
        kept = [line for line in lines if not any(info in line for info in infos)]
        return CompileError(
            "\n".join([f"{self.path.name} does not compile for {arch}", *kept[:40]]),
            hint="the compiler's message above names the file and line",
            log=log,
        )

    def _noting(self, built: tuple[Compiled, Any], headers: list[str]) -> tuple[Compiled, Any]:
        notes = [
            f"{header} was not found and left out: only the host uses it" for header in headers
        ]
        return replace(built[0], warnings=(*built[0].warnings, *notes)), built[1]

    def _by_nvrtc(self, text: str, arch: str) -> tuple[Compiled, Any]:
        try:
            from cuda.core import Program, ProgramOptions
        except ImportError as error:
            raise EnvironmentLacks(f"cuda-core cannot be imported: {error}", hint=INSTALL) from None
        is_program = self.compiler != NVRTC
        options = ProgramOptions(
            name=self._virtual_name,
            arch=arch,
            lineinfo=True,
            include_path=header_folders() + (header_folders(named_only=True) if is_program else []),
            define_macro=[(key, str(value)) for key, value in self.defines.items()] or None,
            ptxas_options=[*STANDARD_OPTIONS, *self.options],
            device_as_default_execution_space=is_program or None,
        )
        log = io.StringIO()
        try:
            program = Program(text, "c++", options)
            expressions = () if self.name.isidentifier() else (self.name,)
            code = program.compile("cubin", expressions, logs=log)
        except Exception as error:
            raise self._error(
                arch, "\n".join(filter(None, (log.getvalue().strip(), str(error).strip())))
            ) from error
        if self.must_wait and not waits(ptx_of(program), self.name):
            raise CompileError(
                f"{self.path.name}: {self.name} starts early and never waits",
                hint="griddepcontrol.wait belongs ahead of its first access to global memory",
            )
        symbol = self.name
        if is_program and not self.name.isidentifier():
            symbol = code.symbol_mapping[self.name].decode()
        by = f"NVRTC {compiler_version()}" if is_program else ""
        return self._report(arch, log.getvalue(), bytes(code.code), symbol, by), code

    def _report(self, arch: str, log: str, cubin: bytes, symbol: str, by: str) -> Compiled:
        """Report all kernels of a study's source; of a program, the ``symbol`` alone."""
        builds, warnings = parse_log(log)
        digests = code_digests(cubin)
        is_plain, is_program = self.name.isidentifier(), self.compiler != NVRTC
        if is_plain and self.name not in digests:
            hint = nearest(self.name, digests)
            if any(f"{len(self.name)}{self.name}" in symbol for symbol in digests):
                hint = f'write extern "C" before its __global__, or call it "::{self.name}" here'
            raise CompileError(f"{self.path.name} has no kernel '{self.name}'", hint=hint)
        launched = {symbol} if is_plain or is_program else set(digests)
        builds = [
            replace(
                build,
                code=digests.get(build.kernel, "") if build.kernel in launched else "",
                compiler=by,
            )
            for build in builds
            if not is_program or build.kernel == symbol
        ]
        return Compiled(arch, tuple(builds), tuple(warnings))


@cache
def compiler_version() -> str:
    """NVRTC's; "" where it cannot be asked."""
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):
        return ""
    package = package_version("nvidia-cuda-nvrtc")
    return f"{major}.{minor} {package}".strip()


def package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def ptx_of(program: Any) -> str:
    """Return the PTX that NVRTC made on its way to the cubin."""
    from cuda.bindings import nvrtc

    _, size = nvrtc.nvrtcGetPTXSize(program.handle)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program.handle, text)
    return str(text.decode(errors="replace"))


def waits(ptx: str, kernel: str) -> bool:
    """Whether a kernel has a ``griddepcontrol.wait``, itself or in a function that it may call."""
    functions = re.split(r"(?=\.entry\s)", ptx)
    if kernel.isidentifier():  # of a template, whose name is mangled, there is only this instance
        other = re.compile(rf"\.entry\s+(?!{kernel}\b)")
        functions = [text for text in functions if not other.match(text)]
    return any("griddepcontrol.wait" in text for text in functions)


def kept_cubin(source: str, *settings: object) -> Path | None:
    """Name the file in which workers of one measurement pass a cubin on; None outside of one.

    ``settings`` are all that a build depends on besides its source and the compiler.
    """
    folder = os.environ.get(CUBIN_FOLDER)
    if not folder:
        return None
    made_by = (KEPT_AS, compiler_version(), header_folders())
    key = hashlib.sha256(f"{source}\0{settings!r}\0{made_by!r}".encode()).hexdigest()
    return Path(folder) / CUBINS.replace("*", key)


def _restore(kept: Path) -> tuple[Compiled, Any] | None:
    """Read what ``Source.compile`` wrote, else None."""
    import msgspec
    from cuda.core import ObjectCode

    try:
        saved = msgspec.json.decode(kept.read_bytes(), type=KeptBuild)
    except (msgspec.DecodeError, RecursionError):
        return None
    symbols = {name: symbol.encode() for name, symbol in saved.symbols.items()}
    return saved.report, ObjectCode.from_cubin(saved.cubin, symbol_mapping=symbols)


TOOLKIT = Path("/usr/local/cuda/bin/nvcc")
HOST_COMPILERS = ("g++", "clang++", "c++")  # nvcc preprocesses with one
NVCC_FLAGS = ("-cubin", "-lineinfo", "--expt-relaxed-constexpr", "--expt-extended-lambda")
SOURCE, CUBIN, ENTRY = "kernel.cu", "kernel.cubin", "workbench_entry"
COMPILE_SECONDS = 600.0


class NvccFails(Exception):
    """nvcc itself does not work, whatever the source; with what it prints."""


@cache
def find_nvcc() -> str:
    """Find nvcc on PATH, or in the CUDA toolkit; "" without a host compiler as well."""
    nvcc = shutil.which("nvcc") or (str(TOOLKIT) if TOOLKIT.is_file() else "")
    return nvcc if os.environ.get("NVCC_CCBIN") or any(map(shutil.which, HOST_COMPILERS)) else ""


@cache
def nvcc_version(nvcc: str) -> str:
    release = re.search(r"\bV([\d.]+)", ran([nvcc, "--version"], "/")[1])
    return f"nvcc {release[1]}" if release else "nvcc"


def ran(
    command: Sequence[str],
    folder: str | Path,
    seconds: float = COMPILE_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> tuple[int | None, str]:
    """Exit code and output of a tool; the code is None where it did not start or come to an end."""
    late = f"{command[0]} timed out after {seconds:g} seconds"
    try:
        with tempfile.TemporaryFile("w+", errors="replace") as output:  # a child keeps a pipe open
            streams = {"stdout": output, "stderr": subprocess.STDOUT}
            code = ended(command, seconds, cwd=folder, env=environment, **streams)
            output.seek(0)
            return code, output.read() if code is not None else late
    except OSError as error:
        return None, str(error)
