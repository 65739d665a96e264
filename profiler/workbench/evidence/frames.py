"""Decompression within bounds: a small file may claim to hold all the memory there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from workbench.errors import BadCapture

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
MOST = 4 << 30  # bytes that any file may hold
MOST_READ = 256 << 20  # of those that are read whole
RATIO = 1000  # times its size; reports have 25, their tables 16
ALWAYS = 64 << 20  # bytes that are no burden, whatever the ratio
CHUNK = 1 << 22
WINDOW_LOG = 27  # ZSTD_WINDOWLOG_LIMIT_DEFAULT
LEVEL = 12  # a tenth of the time of 19 for a sixth more bytes
MOST_FRAMES = 100_000  # of a file: an empty one takes 180 times its size to read
READ = 1 << 11  # bytes that cannot hold more than 64 MB


def bound(size: int) -> int:
    """How many bytes a compressed file of ``size`` bytes may hold."""
    return min(MOST, max(ALWAYS, RATIO * size))


def is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == ZSTD_MAGIC


def pieces(path: Path) -> Iterator[bytes]:
    """A file's content, decompressed. Raises BadCapture if damaged or larger than ``bound``."""
    import zstandard

    if not is_compressed(path):
        with path.open("rb") as file:
            yield from iter(partial(file.read, CHUNK), b"")
        return
    left, held = bound(path.stat().st_size), b""
    try:
        for piece in _decompressed(path):
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


def _decompressed(path: Path) -> Iterator[bytes]:
    """Frame by frame. Raises ZstdError, and EOFError where the last one has no end."""
    import zstandard

    frame, rest, frames = zstandard.ZstdDecompressor().decompressobj(), b"", 1
    with path.open("rb") as file:
        while data := rest or file.read(READ):
            rest = b""
            if frame.eof:
                frames += 1
                if frames > MOST_FRAMES:
                    raise zstandard.ZstdError(f"it has more than {MOST_FRAMES} frames")
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(data)
            rest = frame.unused_data
    if not frame.eof:
        raise EOFError("it is cut short")


def check(path: Path) -> None:
    """Decompress all of it and keep nothing. Raises BadCapture as ``pieces`` does."""
    if is_compressed(path):
        deque(pieces(path), maxlen=0)


def beginning(data: bytes) -> bytes:
    """The first 300 bytes of what a frame holds. Raises ValueError for what is none."""
    import zstandard

    try:
        return zstandard.ZstdDecompressor().stream_reader(data).read(300)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def whole(data: bytes) -> bytes:
    """One frame that says how much it holds. Raises ValueError for what is none, or too large."""
    import zstandard

    try:
        if not 0 < zstandard.frame_content_size(data) <= min(MOST_READ, bound(len(data))):
            raise ValueError("it does not say what it holds, or holds too much")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def compressed(data: bytes, level: int = LEVEL) -> bytes:
    """One frame with a checksum of its content. It looks back as far as any decompressor allows
    without being asked, 128 MB: the module that launches are of stands in a report once for each.
    """
    import zstandard

    chosen = zstandard.ZstdCompressionParameters.from_level(
        level, source_size=len(data), window_log=WINDOW_LOG, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=chosen).compress(data)
