"""The GPU in a timing process, with the kernels of neighbours.cu: the clocks that they note, where
the inputs of the instances at a shape come from, and how their outputs are read.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from workbench import cuda
from workbench.errors import UsageError, nearest
from workbench.run.worker.output import Outputs, paired, size_of
from workbench.study.values import Shape, Tolerance
from workbench.words import Inputs

# Replays whose stamps and sums are held: 35 MB of stamps on the 132 SMs of an H100, 8 MB of sums.
# Two rounds must fit, which bounds the instances of a session (MOST_INSTANCES).
SLOTS = 4096
# Calls of a graph. secret() in neighbours.cu has numbers for 64 calls of a replay, and the call
# ahead of the stamps is numbered besides these.
MOST_CALLS = 48
ROWS_OF_SUMS = MOST_CALLS + 1  # of a replay: the call ahead of the stamps is summed, too
SUMMED = 4  # outputs of a call, at most; its row has the key of the signs behind them
POLL_SECONDS = 1e-3
REPORT_SECONDS = 1.0  # between two looks at how far the GPU is
# A stamp has a block for each SM, but two blocks may run on one SM. The SM without any still has
# its stamp of SLOTS replays ago, which is further from the others than this.
SKEW_NS = 200_000
KERNELS = ("advance", "write_inputs", "read_output", "stamp")
START, END, BETWEEN, CALL, BEFORE = range(5)  # see neighbours.cu
ROWS = 4  # of a replay
# Draws of the inputs that are held; a call has one of them, times factors of its own. Integers have
# no factors, so that several draws are what tells calls apart there. Each takes the inputs' memory.
DRAWS = 4
PIECE = 16  # bytes: the widest load and store of a thread
# Before and behind a tensor: an access just outside of it meets no other tensor, and none that is
# not there. A check fills as much with a pattern, and tells who wrote there.
GUARD_BYTES = 64 * 1024
AT_ONCE = 1 << 22  # pieces that are computed again at a time: 64 MiB, whatever the size of a tensor
# Times the L2 that calls move before one has the same constant inputs again: L2 holds an eighth of
# them from earlier calls, at most. Of a layer's weights in a model it holds nothing.
APART = 8
MOST_COPIES = MOST_CALLS  # a graph has a multiple of them
MEMORY_OF_COPIES = 0.2  # of the free memory: three processes of the referee have them at once
# 1,024 threads an SM with a piece each: 2 MB in flight on an H100, its bandwidth times its latency.
THREADS = 256
BLOCKS_AN_SM = 4
WHOLE = 8  # a bit beside KINDS: all pieces have one factor
KINDS = {torch.float16: 1, torch.bfloat16: 2, torch.float32: 3, torch.float64: 4}
SUMMED_KINDS = KINDS | {
    **{torch.int8: 5, torch.uint8: 6, torch.bool: 6, torch.int16: 7, torch.int32: 8},
    **{torch.int64: 9, torch.float8_e4m3fn: 10, torch.float8_e5m2: 11},
}
# secret() has 64 numbers for a call: those of tensors begin at 0, and these say which draw a call
# has, and which call's output is kept.
DRAW, KEPT = 63, 62
MOST_TENSORS = 60
MASK = 2**32 - 1
N = TypeVar("N", int, torch.Tensor)
T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]
# Many errors with random signs add up like a normal variable, which exceeds six standard deviations
# in two of 10^9. The sum itself is rounded in fp64, in another order than the expected one.
SIGMAS = 6
ROUNDING = 1e-9


def mix(x: N) -> N:
    """Hash 32 bits, or those of every element in int64, as neighbours.cu does: ``lowbias32`` of
    C. Wellons' Hash Prospector, which is cheap enough for every piece of every call, and flips each
    output bit for half of the inputs.
    """
    x = ((x ^ x >> 16) * 0x7FEB352D) & MASK
    x = ((x ^ x >> 15) * 0x846CA68B) & MASK
    return x ^ x >> 16


def secret(replay: int, call: int, what: int, chain: int = 0) -> int:
    """Draw a number as neighbours.cu does, for a call of a replay.

    Every call has other inputs, and no call knows whether its output is the one that is kept. So
    a variant that returns an earlier result, or computes only now and then, gives a wrong output.
    """
    return mix((mix((replay ^ chain) & MASK) + call * 64 + what) & MASK)


def fold(number: float) -> int:
    """Hash a number as neighbours.cu does."""
    low, high = map(int, struct.unpack("<2I", struct.pack("<d", number)))
    return mix(low ^ mix(high))


def before(call: int, calls: int) -> int | None:
    """The call of a graph of ``calls`` that comes before this one, whose sum decides its inputs:
    first comes the one ahead of the others, whose number is ``calls``.
    """
    return None if call >= calls else (call or calls + 1) - 1


def factors(own: int, pieces: torch.Tensor) -> torch.Tensor:
    """Return the factors of pieces of a floating-point tensor with its secret, in float64."""
    return 1 - (mix(pieces ^ own) & 255) / 1024


def signed_sum(values: torch.Tensor, like: torch.Tensor, key: int) -> tuple[float, float]:
    """Add up the elements of a result with the type and layout of ``like``, as neighbours.cu does,
    each with a sign of its place and the call's ``key``. Return the sum and the norm.
    """
    laid = torch.empty_strided(like.shape, like.stride(), dtype=torch.float64, device=like.device)
    laid.copy_(values)
    lanes_each = PIECE // like.element_size()
    flat = in_memory(laid)[: like.numel() // lanes_each * lanes_each].view(-1, lanes_each)
    lanes, total, squares = torch.arange(lanes_each, device=like.device), 0.0, 0.0
    for first in range(0, len(flat), AT_ONCE):
        piece = flat[first : first + AT_ONCE]
        pieces = torch.arange(first, first + len(piece), device=like.device) & MASK
        minus = (mix(pieces ^ key)[:, None] >> lanes & 1).bool()
        total += float(torch.where(minus, -piece, piece).sum())
        squares += float(piece.square().sum())
    return total, math.sqrt(squares)


def wrong_sums(
    sums: Mapping[str, float], key: int, outputs: Outputs, expected: Outputs, bound: Tolerance
) -> str:
    """Why the signed sums of a call, by output, are not the expected ones; "" where they are.

    outputs: Kept ones, which lie in memory as those of the call do. The signs are independent of
    the errors, so that errors within the bound hardly ever add up to SIGMAS times it.
    """
    for mine, its in paired(outputs, expected).values():
        like = outputs.tensors[mine]
        if mine not in sums or like.dtype not in SUMMED_KINDS:
            continue
        wanted, norm = signed_sum(expected.tensors[its], like, key)
        if math.isfinite(wanted) and norm:
            error = abs(sums[mine] - wanted) / norm
            if not error <= SIGMAS * bound.relative + ROUNDING:
                what = f"'{mine}': " if mine else ""
                return (
                    f"{what}by its signed sum the error is {error:.3g} of its norm "
                    f"(allowed {SIGMAS * bound.relative:.3g})"
                )
    return ""


def kept_call(replay: int, calls: int) -> int:
    """The call of a replay whose output is kept."""
    return secret(replay, 0, KEPT) % calls


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill one piece of memory, in some order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor in the order in which they lie in memory: [elements]."""
    return tensor.as_strided((tensor.numel(),), (1,))


def pieces_in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a dense tensor as bytes, the last piece in full: [pieces, 16]."""
    offset = tensor.storage_offset() * tensor.element_size()
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return raw.set_(tensor.untyped_storage(), offset, (pieces_of(tensor), PIECE), (PIECE, 1))


def pieces_of(tensor: torch.Tensor) -> int:
    """Count the pieces of 16 bytes, the last of which may not be full."""
    return -(-size_of(tensor) // PIECE)


def room_for(like: torch.Tensor, copies: int) -> list[torch.Tensor]:
    """Tensors of the layout of a dense one, one behind the other, each a number of pieces. They
    begin inside of their memory, as those of a check do.
    """
    size, used = pieces_of(like) * PIECE, size_of(like)
    memory = torch.empty(copies * size + 2 * GUARD_BYTES, dtype=torch.uint8, device="cuda")
    memory = memory[GUARD_BYTES:-GUARD_BYTES].view(copies, size)
    return [
        row[:used]
        .view(like.dtype)
        .as_strided(like.shape, like.stride(), row.storage_offset() // like.element_size())
        for row in memory
    ]


def on_gpu(value: Any) -> bool:
    """Whether it is an input that the neighbours write."""
    return isinstance(value, torch.Tensor) and value.is_cuda and value.numel() > 0


def seed_all(seed: int) -> None:
    """A study may ignore its generator."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed & MASK)


def fresh(study: ModuleType, shape: Shape, seeds: random.Random) -> Inputs:
    generator = torch.Generator("cuda").manual_seed(seeds.randrange(2**48))
    inputs = study.inputs(shape, generator)
    assert isinstance(inputs, dict)
    return inputs


def copies_of_constants(moved: float, l2_bytes: int, bytes_each: int, free: float) -> int:
    """Return how many copies constant inputs of ``bytes_each`` need if a call moves at least
    ``moved`` bytes: one in APART of what it reads can be in L2 from earlier calls, at most.
    """
    wanted = math.ceil(APART * l2_bytes / max(moved, 1.0))
    return max(1, min(wanted, MOST_COPIES, int(MEMORY_OF_COPIES * free / max(bytes_each, 1))))


class InputTables(NamedTuple):
    """Tables of where the neighbours write the inputs of an instance: [tensors, 5] each, see
    neighbours.cu.

    ``indices`` are integers and flags, ``restored`` those that a call changes: both are written
    whole. None where there are none.
    """

    floats: torch.Tensor | None
    indices: torch.Tensor | None
    restored: torch.Tensor | None


class Neighbours:
    """Draws of the study's inputs at a shape, which are written in full before every call.

    Nobody writes ``constant`` inputs: all instances share them until they are ``renewed``. They
    are held in ``copies`` of other values, which calls have in turn: between two calls of a layer a
    model reads the weights of all its others.
    """

    def __init__(
        self,
        gpu: TimedGpu,
        study: ModuleType,
        shape: Shape,
        seed: int | None = None,
        copies: int | None = None,
    ) -> None:
        """``seed`` decides all draws, those of a study that ignores its generator as well;
        ``copies`` are as many as memory allows where nobody says how many.
        """
        self.gpu = gpu
        if seed is not None:
            seed_all(seed)
        seeds = random.SystemRandom() if seed is None else random.Random(seed)
        self.draw = partial(fresh, study, shape, seeds)
        self.like = self.draw()
        self.constant: tuple[str, ...] = tuple(getattr(study, "constant", ()))
        self.names = [
            name for name, value in self.like.items() if on_gpu(value) and name not in self.constant
        ]
        self.in_place: tuple[str, ...] = tuple(getattr(study, "in_place", ()))
        self.whole = bool(getattr(study, "structured", False))
        self._require_writable()
        self.sources = {name: room_for(self.like[name], DRAWS) for name in self.names}
        for draw in range(DRAWS):
            drawn = self.draw()
            for name in self.names:
                self.sources[name][draw].copy_(drawn[name].detach())
            del drawn
        self.most_pieces = max((pieces_of(self.like[name]) for name in self.names), default=1)
        self.constants = [{name: self.like[name] for name in self.constant}]
        if not copies and self.constant:
            size = sum(size_of(self.like[name]) for name in self.constant)
            free = torch.cuda.mem_get_info()[0]
            copies = copies_of_constants(study.work(shape).bytes, gpu.l2_bytes, size, free)
        for _ in range((copies or 1) - 1):
            drawn = self.draw()
            self.constants.append({name: drawn[name] for name in self.constant})
            del drawn

    @property
    def copies(self) -> int:
        return len(self.constants)

    def constants_of(self, call: int) -> Inputs:
        """The constant inputs of a call of a graph, which has a multiple of ``copies`` where
        nothing is overwritten between them; -1: of the one ahead.
        """
        return self.constants[call % self.copies]

    def _require_writable(self) -> None:
        if len(self.names) > MOST_TENSORS:
            raise UsageError(
                f"inputs() gives {len(self.names)} tensors on the GPU",
                hint=f"up to {MOST_TENSORS} can be timed",
            )
        on_the_gpu = [name for name, value in self.like.items() if on_gpu(value)]
        named = {"in_place": (self.in_place, self.names), "constant": (self.constant, on_the_gpu)}
        for part, (names, known_names) in named.items():
            for name in names:
                if name not in known_names:
                    raise UsageError(
                        f"{part} names '{name}', which is no tensor on the GPU that inputs() gives",
                        hint=nearest(name, self.names),
                    )
        for name in self.names:
            if not is_dense(self.like[name]):
                raise UsageError(
                    f"inputs() gives '{name}', whose elements do not fill its memory",
                    hint="give a contiguous tensor or a transposed view of one",
                )

    def renew(self) -> None:
        """Other values for what is constant, where it stands."""
        if not self.constant:
            return
        for copy in self.constants:
            drawn = self.draw()
            for name in self.constant:
                copy[name].detach().copy_(drawn[name].detach())
            del drawn

    def inputs(self) -> Inputs:
        """Return inputs of the first draw in memory of their own; constant ones are shared."""
        tensors = {name: room_for(self.like[name], 1)[0] for name in self.names}
        for name, tensor in tensors.items():
            tensor.copy_(self.sources[name][0])
            tensor.requires_grad_(self.like[name].requires_grad)
        return {**self.like, **tensors}

    @property
    def groups(self) -> tuple[list[str], list[str], list[str]]:
        """The names of the floating-point inputs that no call changes, of the others that none
        changes, and of those that a call changes.
        """
        same = [name for name in self.names if name not in self.in_place]
        floats = [name for name in same if self.like[name].dtype in KINDS]
        restored = [name for name in self.names if name in self.in_place]
        return floats, [name for name in same if name not in floats], restored

    def input_tables(self, inputs: Inputs) -> InputTables:
        return InputTables(*(self._rows(inputs, names) for names in self.groups))

    def _rows(self, inputs: Inputs, names: Sequence[str]) -> torch.Tensor | None:
        rows = []
        for name in names:
            to, pieces = inputs[name], pieces_of(inputs[name])
            source = self.sources[name][0].data_ptr()
            kind = KINDS.get(to.dtype, 0) | WHOLE * self.whole
            rows.append((to.data_ptr(), source, pieces, pieces, kind))
        return torch.tensor(rows, dtype=torch.int64).cuda() if rows else None

    def blocks(self, pieces: int) -> int:
        """How many a neighbour has for so many pieces."""
        return max(1, min(-(-pieces // THREADS), self.gpu.sms * BLOCKS_AN_SM))

    def write(self, table: InputTables, call: int, calls: int = 0) -> None:
        """Nodes that write the inputs of a call of a graph of ``calls``; 0: of one by itself."""
        for rows in table:
            self._write(rows, call, calls)

    def restore(self, table: InputTables, call: int) -> None:
        """A node that writes those that a call changes; none where it changes none."""
        self._write(table.restored, call)

    def _write(self, rows: torch.Tensor | None, call: int, calls: int = 0) -> None:
        if rows is not None:
            grid, gpu = (self.blocks(self.most_pieces), len(rows)), self.gpu
            earlier = before(call, calls)
            sums = 0 if earlier is None else gpu.sums[0, earlier]
            gpu.kernels["write_inputs"][grid, THREADS](
                *(rows, DRAWS, gpu.state, call, sums, ROWS_OF_SUMS * (SUMMED + 1), SLOTS)
            )

    def sum_output(
        self, out: torch.Tensor, kept: torch.Tensor, call: int, calls: int, number: int
    ) -> None:
        """A node that reads an output, by its ``number``, and keeps it where the call is the one
        that is kept. It sums the first outputs of every call, but of those untold (-1).
        """
        pieces, tail = divmod(size_of(out), PIECE)
        kind = SUMMED_KINDS.get(out.dtype, 0) if 0 <= call <= calls and number < SUMMED else 0
        sums = self.gpu.sums[0, call] if kind else self.gpu.sums
        self.gpu.kernels["read_output"][self.blocks(pieces), THREADS](
            *(out, kept, pieces, tail, self.gpu.state, call, calls),
            *(sums, ROWS_OF_SUMS * (SUMMED + 1), SLOTS, kind, number, SUMMED),
        )

    def written(self, replay: int, call: int, calls: int = 0) -> Inputs:
        """The inputs that a call of a replay had, as the neighbours wrote them. The sums of its
        graph of ``calls``, see ``write``, must still stand in their slot.
        """
        ahead = call >= calls > 0
        inputs = {**self.inputs(), **self.constants_of(-1 if ahead else call)}
        earlier = before(call, calls)
        chain = 0 if earlier is None else fold(float(self.gpu.sums[replay % SLOTS, earlier, 0]))
        draw = secret(replay, call, DRAW, chain) % DRAWS
        for names in self.groups:
            for index, name in enumerate(names):
                source = pieces_in_memory(self.sources[name][draw])
                to, dtype = pieces_in_memory(inputs[name]), self.like[name].dtype
                call_secret = secret(replay, call, index, chain)
                for first in range(0, len(source), AT_ONCE):
                    rows = slice(first, min(first + AT_ONCE, len(source)))
                    pieces = torch.arange(rows.start, rows.stop, device=source.device)
                    by = factors(call_secret, pieces * (not self.whole))
                    to[rows] = scaled(source[rows], dtype, by)
        return inputs


def scaled(pieces: torch.Tensor, dtype: torch.dtype, by: torch.Tensor) -> torch.Tensor:
    """Bytes [pieces, 16] of a type, each piece times a factor: as neighbours.cu does it, in fp32
    (fp64 for fp64), then rounded.
    """
    if dtype not in KINDS:
        return pieces
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    values = pieces.contiguous().view(dtype).to(wide) * by.to(wide)[:, None]
    return values.to(dtype).view(torch.uint8)


@dataclass(frozen=True)
class Times:
    """Per replay: nanoseconds and cycles of its graph, and of all its calls, less those of as many
    pairs of stamps with nothing between, of which ``gaps`` are the nanoseconds.
    """

    nanoseconds: Array
    cycles: Array
    calls: Array
    cycles_of_calls: Array
    gaps: Array


class TimedGpu:
    """The kernels, buffers and streams of the harness (docs/measuring.md, "A timed call").

    Clocks are read by kernels inside of the graph, because host clocks and events between graphs
    include the launch of a graph, which takes longer than a short call. ``replays`` counts as the
    counter on the GPU does, which every graph advances: from it each replay finds its slot, and its
    inputs, without any parameter that the host would have to change.
    """

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.sms = int(properties.multi_processor_count)
        self.l2_bytes = int(properties.L2_cache_size)
        self.state = torch.zeros(2, dtype=torch.int32, device="cuda")  # see neighbours.cu
        self.stamps = torch.zeros((SLOTS, ROWS * self.sms * 2), dtype=torch.int64, device="cuda")
        self.last = torch.zeros((2, self.sms, 2), dtype=torch.int64, device="cuda")
        size = (SLOTS, ROWS_OF_SUMS, SUMMED + 1)
        self.sums = torch.zeros(size, dtype=torch.float64, device="cuda")
        self.side = torch.cuda.Stream()
        self.looking = torch.cuda.Stream()  # past what is queued
        self.seen = torch.zeros(1, dtype=torch.int32).pin_memory()
        self.replays = 0
        self.kernels = {name: cuda.kernel("neighbours.cu", name) for name in KERNELS}
        cuda.take_declared()

    def advance(self) -> None:
        threads = ROWS_OF_SUMS * (SUMMED + 1)
        self.kernels["advance"][1, threads](self.state, self.sums, SLOTS)

    def stamp(self, row: int) -> None:
        self.kernels["stamp"][self.sms, 1](self.stamps, self.last, SLOTS, row, self.sms, self.state)

    def around(self, call: Callable[[], T]) -> T:
        self.stamp(BEFORE)
        self.stamp(BETWEEN)
        result = call()
        self.stamp(CALL)
        return result

    def warm(self) -> None:
        """Load the kernels before anything is captured."""
        self.advance()
        self.replays += 1
        self.stamp(START)
        self.stamp(END)

    def fetch(self, count: int) -> torch.Tensor:
        """Queue a copy of the stamps of the latest replays to the host, behind them in the stream.
        Return where they will be.
        """
        to = torch.empty((count, self.stamps.shape[1]), dtype=torch.int64, pin_memory=True)
        first = (self.replays - count + 1) % SLOTS
        head = min(count, SLOTS - first)
        to[:head].copy_(self.stamps[first : first + head], non_blocking=True)
        if count > head:
            to[head:].copy_(self.stamps[: count - head], non_blocking=True)
        return to

    def wait(self, done: torch.cuda.Event, tell: Callable[[int], None]) -> None:
        """Wait for an event. If that takes seconds, ``tell`` gets the number of the replay that the
        GPU is at, each time it has changed: a GPU that hangs reports no more.
        """
        look, last_seen, copied = monotonic() + REPORT_SECONDS, -1, None
        while not done.query():
            sleep(POLL_SECONDS)
            if monotonic() < look or (copied is not None and not copied.query()):
                continue
            look = monotonic() + REPORT_SECONDS
            if copied is not None and int(self.seen) > last_seen:
                last_seen = int(self.seen)
                tell(last_seen)
            with torch.cuda.stream(self.looking):
                self.seen.copy_(self.state[:1], non_blocking=True)
                copied = torch.cuda.Event()
                copied.record()

    def times(self, fetched: torch.Tensor) -> Times:
        """Return the times of fetched stamps; see ``between``."""
        return between(fetched.numpy().reshape(-1, ROWS, self.sms, 2))


def between(stamps: Array) -> Times:
    """Medians over the SMs that stamped both ends: [replay, row, SM, (cycles, nanoseconds)].

    The SM clock inside of a call may be 9 % below that of its graph, so that cycles alone do not
    tell its time. Nanoseconds advance in steps of 32 on an H100.
    """
    start, end = stamps[:, START, :, 1], stamps[:, END, :, 1]
    near = np.ones_like(start, dtype=bool)
    for ends in (start, end):
        near &= np.abs(ends - np.median(ends, axis=1, keepdims=True)) < SKEW_NS

    def over_sms(values: Array) -> tuple[Array, Array]:
        cycles, nanoseconds = np.nanmedian(np.where(near[:, :, None], values, np.nan), 1).T
        return cycles, nanoseconds

    cycles, nanoseconds = over_sms(stamps[:, END] - stamps[:, START])
    cycles_of_calls, calls = over_sms(stamps[:, CALL] - stamps[:, BETWEEN])
    _, gaps = over_sms(stamps[:, BETWEEN])
    return Times(nanoseconds, cycles, calls, cycles_of_calls, gaps)


def switch_contexts() -> None:
    """Let the GPU work for another context of this process for a moment.

    Loading modules leaves it in a state in which the way from one kernel of a graph to the next
    takes 0.2 to 0.4 µs longer (docs/measuring.md); working for another context ends that.
    """
    from cuda.bindings import driver

    torch.cuda.empty_cache()  # the other context needs memory of its own
    _, context = driver.cuCtxGetCurrent()
    _, device = driver.cuDeviceGet(0)
    status, other = driver.cuCtxCreate(None, 0, device)
    if int(status) != 0:
        raise RuntimeError(f"a second context: {status!r}")
    _, memory = driver.cuMemAlloc(1 << 20)
    calls: list[Callable[[], Any]] = [
        lambda: driver.cuMemsetD8(memory, 1, 1 << 20),
        driver.cuCtxSynchronize,
        lambda: driver.cuCtxDestroy(other),
        lambda: driver.cuCtxSetCurrent(context),
    ]
    for call in calls:
        (status,) = call()
        if int(status) != 0:
            raise RuntimeError(f"in a second context: {status!r}")


def set_aside_l2() -> int:
    """Bytes of the L2 that this context keeps for persisting accesses."""
    from cuda.bindings import driver

    status, size = driver.cuCtxGetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
    return int(size) if int(status) == 0 else 0


def put_back_l2(size: int) -> int:
    """Keep so many bytes again; returns how many there were."""
    from cuda.bindings import driver

    before = set_aside_l2()
    if before != size:
        driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, size)
        driver.cuCtxResetPersistingL2Cache()
    return before
