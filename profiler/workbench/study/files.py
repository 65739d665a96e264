"""Reads and writes files within bounds, whoever wrote them.

TOML is read strictly, so that a misspelt key never passes for a setting; JSON without a key twice,
not too deep, and not too large for memory; and of a compressed file no more than its size can hold:
a small one may claim to hold all the memory there is. Nothing is written through a link out of the
workspace, and only files that are recorded as the workbench's own are deleted.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import tempfile
import threading
import time
import tomllib
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import partial
from glob import escape
from pathlib import Path
from shlex import quote
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import fields

from workbench import bounds
from workbench.cuda.programs import source_text
from workbench.errors import BadCapture, EnvironmentLacks, UsageError, nearest

Filled = TypeVar("Filled")
REPAIR = "restore it, or delete it and measure again"  # of evidence
_PLAIN = frozenset(range(0x20, 0x7F)) - frozenset(b"'\\")  # bytes that $'...' leaves as they are
_KEY = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DEEP_KEY = re.compile(rf"""(?<![\w"'-])(?:{_KEY}[ \t]*\.[ \t]*){{{bounds.KEY_PARTS}}}""")


def stands(path: Path) -> bool:
    """Whether there is anything of that name, be it a folder or a link to nothing."""
    try:
        return os.path.lexists(path)
    except ValueError:  # a name with a zero byte
        return False


def no_file(path: Path) -> str:
    """Why there is no file to read at ``path``; "" where there is one."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "is a link to nothing" if path.is_symlink() else "is not there"
    except ValueError:
        return "is no name of a file"
    except OSError as error:
        return "is a link in a loop" if error.errno == errno.ELOOP else str(error.strerror)
    if stat.S_ISDIR(mode):
        return "is a folder, not a file"
    return "" if stat.S_ISREG(mode) else "is no regular file"


def require_readable(
    path: Path, most: int = bounds.FILE, hint: str = "is it the right file?"
) -> None:
    """Raises UsageError for what is no file, and for a file of more than ``most`` bytes."""
    if why := no_file(path):
        raise UsageError(f"{path} {why}", hint="put a text file there" if path.is_dir() else hint)
    if path.stat().st_size > most:
        what = f"{path} is larger than {most >> 20} MiB, the limit of such a file"
        raise UsageError(what, hint=hint)


def listed(folder: Path, end: str = "") -> list[Path]:
    """Return what is in a folder and ends so, sorted; nothing where there is no such folder, and no
    hidden files. Raises EnvironmentLacks for a folder that cannot be read: it is not empty.
    """
    try:
        paths = list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(folder, error) from None
    return sorted(p for p in paths if p.name.endswith(end) and not p.name.startswith("."))


def is_there(path: Path) -> bool:
    """Whether there is such a file. Raises EnvironmentLacks where that cannot be known."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError | ValueError) -> EnvironmentLacks:
    why = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return EnvironmentLacks(
        f"{path} cannot be read: {why}",
        hint="`ls -ld` says who may read it; nothing was written on its account",
    )


def contents(path: Path, repair: str = REPAIR) -> bytes:
    """Raises UsageError if irregular or too large, EnvironmentLacks if it cannot be read."""
    try:
        require_readable(path, bounds.FILE, repair)
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None


def read_text(path: Path, most: int = bounds.FILE) -> str:
    """Raises UsageError for what is no file, is too large, may not be read, or is not UTF-8: with
    the byte.
    """
    require_readable(path, most)
    try:
        return source_text(path, str(path))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="look at who may read it"
        ) from None


def readable_text(path: Path) -> str:
    """A source to be shown: what is not UTF-8 in it is replaced, and refused when it is built."""
    return path.read_text(encoding="utf-8", errors="replace")


def for_shell(path: str | Path) -> str:
    """The path as a shell reads it, also one that is not UTF-8 or has a line break."""
    if str(path).isprintable():
        return quote(str(path))
    plain = (chr(b) if b in _PLAIN else f"\\x{b:02x}" for b in os.fsencode(path))
    return f"$'{''.join(plain)}'"


def is_plain_name(name: str) -> bool:
    """Whether a name can be that of a file, and of none outside of its folder."""
    inside = name.isprintable() and not name.startswith(".") and not {"/", "\\"} & set(name)
    try:
        return inside and 0 < len(os.fsencode(name)) <= bounds.NAME_BYTES
    except UnicodeError:
        return False


def read_toml(path: Path) -> dict[str, object]:
    """Raises UsageError naming the file for what cannot be read, or is not TOML."""
    text = read_text(path, bounds.SETTINGS)
    if _DEEP_KEY.search(text):
        why = f"has a key of more than {bounds.KEY_PARTS} parts"
        raise UsageError(f"{path} {why}", hint="no setting and no ladder needs that")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also of a number with more digits than Python reads
        named = isinstance(error, tomllib.TOMLDecodeError)
        hint = "fix this line" if named else "write a number with fewer digits"
        raise UsageError(f"{path} is not valid TOML: {error}", hint=hint) from None
    except RecursionError:
        raise UsageError(
            f"{path} is not valid TOML here: too deeply nested", hint="nothing in it needs depth"
        ) from None


class TomlTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table that a user writes. Another key than a field of it is an error."""


def convert(data: object, kind: type[Filled], path: Path) -> Filled:
    """``data`` of the file ``path`` as a ``kind``. Raises UsageError naming the file, the key, the
    type expected there, and of an unknown key or word the nearest one.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
    where, named = where.strip(".`"), _NAMED.fullmatch(what)
    above, _, key = where.rpartition(".")
    said = in_words(data, where)
    hint = f"leave '{said}' out for the default"
    if any(f.encode_name == key and f.required for f in fields(type_at(kind, above))):
        hint = f'write {key} = "..."'
    if named and named[1] == "Object contains unknown field":
        keys = [field.encode_name for field in fields(type_at(kind, where))]
        full = f"{said}.{named[2]}" if where else named[2]
        hint = nearest(named[2], keys)
        raise UsageError(f"{path}: unknown key '{full}'", hint=hint)
    if named and named[1] == "Invalid enum value":
        wanted = type_at(kind, where)
        hint = nearest(named[2], map(str, get_args(wanted) or wanted))
    elif named:
        hint = f"write {named[2]} = "
    for theirs, ours in (("`object`", "a table"), ("`array`", "a list"), (" | null`", "`")):
        what = what.replace(theirs, ours)
    raise UsageError(f"{path}: '{said}': {what[0].lower()}{what[1:]}", hint=hint)


# How msgspec names a key or a word that is wrong or lacking.
_NAMED = re.compile(
    r"(Object contains unknown field|Object missing required field|Invalid enum value)"
    r" [`'](.*)[`']",
    re.DOTALL,
)


def type_at(kind: Any, where: str) -> Any:
    """Return the type of a key such as ``step[0].prediction[1]``; of a list that of its entries."""
    for key in re.findall(r"[a-z_]+", where):
        (kind,) = (f.type for f in fields(kind) if f.encode_name == key)
        kind = kind if get_origin(kind) is Literal else next(iter(get_args(kind)), kind)
    return kind


def in_words(data: Any, where: str) -> str:
    """A key such as ``step[1].kind`` as ``step 'fix1'.kind``; counted from 1 without a variant."""
    said = []
    for key, place in re.findall(r"(\w+)(?:\[(\d+)\])?", where):
        data = data[key]
        if place:
            data = data[int(place)]
            name = data.get("variant") if isinstance(data, dict) else None
            key += f" '{name}'" if isinstance(name, str) else f" {int(place) + 1}"
        said.append(key)
    return ".".join(said)


CONFIG_FILE = "workbench.toml"
PART = ".part"  # at the end of the name of a file that is being written
DEAD_AFTER_S = 3600.0  # writing one file takes less than a second


def require_inside(path: Path, top: Path | None = None) -> None:
    """Raises UsageError where links lead a file out of its workspace: out of ``top``, else out of
    the folder with a ``workbench.toml`` above it. Other folders have no such border.
    """
    if top is None:
        where = Path(os.path.normpath(path.absolute()))  # ../b is beside it, not below it
        top = next((p for p in (where, *where.parents) if (p / CONFIG_FILE).is_file()), None)
    if top is not None and not resolved(path).is_relative_to(resolved(top)):
        raise UsageError(
            f"{path} leads out of the workspace {top}, to {resolved(path)}",
            hint="put the folder itself there in place of the link",
        )


def resolved(path: Path) -> Path:
    """Return a path without links. Raises UsageError for links in a loop and for a name that no
    file has.
    """
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise UsageError(f"{path} is a link in a loop", hint="name the file itself") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}", hint="name a file that there is") from None


def mode_of(path: Path) -> int:
    """The permissions that a file is to be written with: as it has them, else by the umask."""
    with suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def delete(path: Path, recorded: Collection[str]) -> None:
    """Only a file whose name is ``recorded`` as written here: no link, and no file of the user."""
    if path.name in recorded and stat.S_ISREG(path.lstat().st_mode):
        require_inside(path)
        path.unlink()


class Rank(IntEnum):
    """The kinds of locks, in the order in which a process takes locks. Two commands with different
    orders could wait for each other for ever, and so could two with two folders: one lock of each.
    """

    GPU = 1
    FOLDER = 2
    FILE = 3  # that lines are added to


NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
without_locks: dict[Path, None] = {}  # what could not be locked, for the command to report
_ranks = threading.local()


@contextmanager
def held(handle: int, rank: Rank, path: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock an open file or folder, where its file system can. Raises BlockingIOError where it does
    not ``wait`` and somebody else has the lock.
    """
    before = getattr(_ranks, "last", 0)
    assert rank > before, f"{rank.name} is locked after {Rank(before).name}"
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        without_locks[path] = None
    _ranks.last = rank
    try:
        yield
    finally:
        _ranks.last = before


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder, which is made if it is not there: nobody else is inside meanwhile. Every use
    case that writes or deletes files because of what it read holds the lock of the folder above
    them all. Raises EnvironmentLacks where the disk is full.
    """
    require_inside(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_full(folder, error) or error from None
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with held(handle, Rank.FOLDER, folder):
            yield
    finally:
        os.close(handle)


@contextmanager
def all_or_nothing() -> Iterator[list[Path]]:
    """Collect what is made inside in a list, and delete it again where anything fails."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):  # a folder in which somebody else put something stays
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        raise


def write_new(path: Path, data: bytes, top: Path, made: list[Path]) -> bool:
    """Write a file below ``top``, whole or not at all; False where its name is taken, be it by a
    link. What it makes is added to ``made``. Raises UsageError where a folder on the way is a file.
    """
    if stands(path):
        return False
    require_inside(path, top)
    make_folder(path.parent, made)
    write_bytes(path, data)
    made.append(path)
    return True


def make_folder(folder: Path, made: list[Path]) -> Path:
    """The folder; it and those above that it makes are added to ``made``. Raises UsageError where
    one of them is a file.
    """
    for step in reversed([folder, *folder.parents]):
        if step.is_dir():
            continue
        if stands(step):
            raise UsageError(
                f"{step} is a file, where a folder is needed",
                hint="move it away, or name another folder",
            )
        with suppress(FileExistsError):  # another command was faster
            step.mkdir()
            made.append(step)
    return folder


def disk_full(path: Path, error: OSError) -> EnvironmentLacks | None:
    """The error to raise where a write failed for want of space; None for other reasons."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return EnvironmentLacks(
        f"no space left on the disk that holds {path}",
        hint="free some space and run the same command again: what was finished is kept",
    )


def _sweep(path: Path) -> None:
    """Delete what killed runs have left of writing this file."""
    for part in path.parent.glob(f".{escape(path.name)}.*{PART}"):
        with suppress(OSError):  # another process was faster
            if part.stat().st_mtime < time.time() - DEAD_AFTER_S:
                part.unlink()


def _is_stream(path: Path) -> bool:
    """Tell whether no file may replace this one: a pipe, a device, or one that the shell opened."""
    opened = path.is_symlink() and str(path.readlink()).startswith("/proc/")
    return opened or (path.exists() and not (path.is_file() or path.is_dir()))


def write_bytes(path: Path, data: bytes) -> None:
    """Write all of it or nothing: a reader never sees half a file. Raises EnvironmentLacks.

    What killed runs left beside it goes. A pipe or a device, such as /dev/stdout, is written to.
    """
    part: Path | None = None
    try:
        if _is_stream(path):
            path.write_bytes(data)
            return
        require_inside(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        part = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(handle, mode_of(path))
            file.flush()
            os.fsync(handle)
        part.replace(path)
    except OSError as error:
        raise disk_full(path, error) or error from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


T = TypeVar("T")
ENTRY, OBJECT = 60, 240  # bytes that an entry of a list, and an object, takes at the most


def json_as_type(data: bytes, kind: Any, *, besides: int = 0) -> Any:
    """A value of ``kind``, which has so many keys ``besides``. Raises msgspec.ValidationError with
    the field, ValueError for all else.
    """
    _require_room(data)
    try:
        value = msgspec.json.decode(data, type=kind)
        # As many colons as it has itself: then no key is unknown, and none stands there twice.
        if data.count(b":") != msgspec.json.encode(value).count(b":") + besides:
            json.loads(data, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def json_data(data: bytes | str, *, finite: bool = True) -> Any:
    """Dictionaries, lists, strings and numbers; ``finite``: no NaN and no infinity among them.
    Raises ValueError.
    """
    _require_room(data.encode(errors="replace") if isinstance(data, str) else data)
    try:
        constant = _refuse if finite else None
        return json.loads(data, object_pairs_hook=_once, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _require_room(data: bytes) -> None:
    if len(data) * (1 + OBJECT) <= bounds.JSON_MEMORY:  # counting takes as long as decoding
        return
    entries = data.count(b",") + data.count(b"[")
    if len(data) + ENTRY * entries + OBJECT * data.count(b"{") > bounds.JSON_MEMORY:
        raise ValueError(f"it would take more than {bounds.JSON_MEMORY >> 20} MiB of memory")


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"has '{twice[:80]}' twice")
    return values


def _refuse(constant: str) -> None:
    raise ValueError(f"has {constant}, which is no number")


ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
CHUNK = 1 << 22
WINDOW_LOG = 27  # ZSTD_WINDOWLOG_LIMIT_DEFAULT
ZSTD_LEVEL = 12  # a tenth of the time of 19 for a sixth more bytes
READ_BYTES = 1 << 11  # bytes that cannot hold more than 64 MB


def most_held(size: int) -> int:
    """How many bytes a compressed file of ``size`` bytes may hold."""
    return min(bounds.HELD, max(bounds.HELD_ALWAYS, bounds.HELD_RATIO * size))


def is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == ZSTD_MAGIC


def decompressed_pieces(path: Path) -> Iterator[bytes]:
    """A file's content, decompressed. Raises BadCapture if damaged or larger than ``most_held``."""
    import zstandard

    if not is_compressed(path):
        with path.open("rb") as file:
            yield from iter(partial(file.read, CHUNK), b"")
        return
    left, held = most_held(path.stat().st_size), b""
    try:
        for piece in _decompressed_frames(path):
            left -= len(piece)
            if left < 0:
                raise BadCapture(
                    f"{path} is no report: it holds more than a thousand times its size",
                    hint="ncu writes none of that kind: profile again",
                )
            held += piece
            if len(held) >= CHUNK:
                yield held
                held = b""
    except (zstandard.ZstdError, EOFError) as error:
        raise BadCapture(
            f"{path} cannot be decompressed: {error}",
            hint="copy it again from where it was made, or profile again",
        ) from None
    yield held


def _decompressed_frames(path: Path) -> Iterator[bytes]:
    """Frame by frame. Raises ZstdError, and EOFError where the last one has no end."""
    import zstandard

    frame, rest, frames = zstandard.ZstdDecompressor().decompressobj(), b"", 1
    with path.open("rb") as file:
        while data := rest or file.read(READ_BYTES):
            rest = b""
            if frame.eof:
                frames += 1
                if frames > bounds.FRAMES:
                    raise zstandard.ZstdError(f"it has more than {bounds.FRAMES} frames")
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(data)
            rest = frame.unused_data
    if not frame.eof:
        raise EOFError("it is cut short")


def check_compressed(path: Path) -> None:
    """Decompress all of it and keep nothing. Raises BadCapture as ``decompressed_pieces`` does."""
    if is_compressed(path):
        deque(decompressed_pieces(path), maxlen=0)


def decompressed_beginning(data: bytes) -> bytes:
    """The first 300 bytes of what a frame holds. Raises ValueError for what is none."""
    import zstandard

    try:
        return zstandard.ZstdDecompressor().stream_reader(data).read(300)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def decompressed(data: bytes) -> bytes:
    """One frame that says how much it holds. Raises ValueError for what is none, or too large."""
    import zstandard

    try:
        most = min(bounds.HELD_WHOLE, most_held(len(data)))
        if not 0 < zstandard.frame_content_size(data) <= most:
            raise ValueError("it does not say what it holds, or holds too much")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def compressed(data: bytes) -> bytes:
    """One frame with a checksum of its content. It looks back as far as any decompressor allows
    without being asked, 128 MB: the module that launches are of stands in a report once for each.
    """
    import zstandard

    chosen = zstandard.ZstdCompressionParameters.from_level(
        ZSTD_LEVEL, source_size=len(data), window_log=WINDOW_LOG, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=chosen).compress(data)


def shown_path(path: Path) -> str:
    """Relative where it stands below the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def packaged_content() -> Path:
    """The built-in workspace: inside the wheel, or the checkout around the source."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "_content"
    return inside if inside.is_dir() else package.parents[1]
