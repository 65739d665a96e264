"""Triton, in the usual design: slots sorted by expert, and each expert padded to whole tiles.

The first product gathers the tokens. The second one weights its outputs and stores them by slot.
"""

import torch
import triton
import triton.language as tl

from workbench import cuda

CHUNK = 1024
# Tile sizes, 0: those of TILES, by the average number of rows per expert.
params = cuda.params(rows=0, cols=0, depth=0, warps=0, stages=0, group=0)
TILES = {
    16: {"rows": 16, "cols": 128, "depth": 128, "warps": 4, "stages": 4, "group": 1},
    64: {"rows": 64, "cols": 128, "depth": 64, "warps": 4, "stages": 4, "group": 8},
    1 << 30: {"rows": 128, "cols": 256, "depth": 64, "warps": 8, "stages": 3, "group": 8},
}


@triton.jit
def count(ids, counts, rows, CHUNK: tl.constexpr):
    offset = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    is_valid = offset < rows
    expert = tl.load(ids + offset, mask=is_valid, other=0)
    tl.atomic_add(counts + expert, 1, mask=is_valid)


@triton.jit
def lay_out(counts, starts, owners, experts, tiles, ROWS: tl.constexpr, EXPERTS: tl.constexpr,
            CHUNK: tl.constexpr):  # fmt: skip
    """The first row of each expert, and the expert of each tile, -1 for unused tiles."""
    expert = tl.arange(0, EXPERTS)
    own = tl.load(counts + expert, mask=expert < experts, other=0)
    padded = (own + ROWS - 1) // ROWS * ROWS
    ends = tl.cumsum(padded, 0)
    if tl.program_id(0) == 0:
        tl.store(starts + expert, ends - padded, mask=expert < experts)
    tile = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    owner = tl.sum((ends[None, :] <= tile[:, None] * ROWS).to(tl.int32), 1)
    tl.store(owners + tile, tl.where(owner < experts, owner, -1), mask=tile < tiles)


@triton.jit
def place(ids, starts, places, rows, CHUNK: tl.constexpr):
    offset = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    is_valid = offset < rows
    expert = tl.load(ids + offset, mask=is_valid, other=0)
    to = tl.atomic_add(starts + expert, 1, mask=is_valid)
    tl.store(places + to, offset, mask=is_valid)


@triton.jit
def product(a, w, weights, out, places, owners, rows, tiles, n, k, topk,
            GATHERS: tl.constexpr, WEIGHS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
            DEPTH: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    """out[row] = a[row or its token] w[expert]^T for the rows of one tile."""
    columns = tl.cdiv(n, COLS)
    per_group = GROUP * columns
    group = tl.program_id(0) // per_group
    group_tiles = tl.minimum(tiles - group * GROUP, GROUP)
    tile = group * GROUP + tl.program_id(0) % per_group % group_tiles
    column = tl.program_id(0) % per_group // group_tiles
    expert = tl.load(owners + tile)
    if expert < 0:
        return
    row = tl.load(places + tile * ROWS + tl.arange(0, ROWS))
    is_valid = row < rows
    source = row // topk if GATHERS else row
    cols, depth = column * COLS + tl.arange(0, COLS), tl.arange(0, DEPTH)
    left = a + source[:, None].to(tl.int64) * k + depth[None, :]
    right = w + (expert.to(tl.int64) * n + cols[None, :] % n) * k + depth[:, None]
    sums = tl.zeros((ROWS, COLS), tl.float32)
    for _ in range(0, k, DEPTH):
        x = tl.load(left, mask=is_valid[:, None], other=0.0)
        y = tl.load(right)
        sums = tl.dot(x, y, sums)
        left += DEPTH
        right += DEPTH
    if WEIGHS:
        sums *= tl.load(weights + row, mask=is_valid, other=0.0)[:, None]
    to = out + row[:, None].to(tl.int64) * n + cols[None, :]
    tl.store(to, sums.to(out.dtype.element_ty), mask=is_valid[:, None] & (cols[None, :] < n))


@triton.jit
def activate(both, activated, intermediate, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offset = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    is_valid = offset < intermediate
    gate = tl.load(both + row * 2 * intermediate + offset, mask=is_valid, other=0.0).to(tl.float32)
    up = tl.load(both + (row * 2 + 1) * intermediate + offset, mask=is_valid, other=0.0)
    silu = gate / (1 + tl.exp(-gate))
    tl.store(
        activated + row * intermediate + offset,
        (silu * up).to(activated.dtype.element_ty),
        mask=is_valid,
    )


@triton.jit
def add(projected, out, hidden, topk, CHUNK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    offset = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    is_valid = offset < hidden
    total = tl.zeros((CHUNK,), tl.float32)
    for slot in range(topk):
        own = tl.load(projected + (token * topk + slot) * hidden + offset, mask=is_valid, other=0.0)
        total += own
    tl.store(out + token * hidden + offset, total.to(out.dtype.element_ty), mask=is_valid)


def tile_of(rows: int, experts: int) -> dict[str, int]:
    """The tile sizes for this number of rows and experts."""
    default = next(tile for limit, tile in TILES.items() if rows <= limit * experts)
    return {name: params[name] or size for name, size in default.items()}


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, topk = topk_ids.shape
    experts, hidden, intermediate = w2.shape
    rows = tokens * topk
    tile = tile_of(rows, experts)
    if hidden % tile["depth"] or intermediate % tile["depth"]:
        raise NotImplementedError("only hidden and intermediate sizes of whole tiles")
    tiles = rows // tile["rows"] + min(experts, rows)

    counts = topk_ids.new_zeros(experts)
    starts, owners = torch.empty_like(counts), topk_ids.new_empty(tiles)
    places = topk_ids.new_full((tiles * tile["rows"],), rows)
    chunks = triton.cdiv(rows, CHUNK)
    count[(chunks,)](topk_ids, counts, rows, CHUNK=CHUNK)
    lay_out[(triton.cdiv(tiles, 32),)](
        counts, starts, owners, experts, tiles, ROWS=tile["rows"],
        EXPERTS=triton.next_power_of_2(experts), CHUNK=32,
    )  # fmt: skip
    place[(chunks,)](topk_ids, starts, places, rows, CHUNK=CHUNK)

    gate_up = x.new_empty(rows, 2 * intermediate)
    activated, projected = x.new_empty(rows, intermediate), x.new_empty(rows, hidden)
    out = torch.empty_like(x)
    options = {
        "ROWS": tile["rows"],
        "COLS": tile["cols"],
        "DEPTH": tile["depth"],
        "GROUP": tile["group"],
        "num_warps": tile["warps"],
        "num_stages": tile["stages"],
    }
    product[(tiles * triton.cdiv(2 * intermediate, tile["cols"]),)](
        x, w13, topk_weights, gate_up, places, owners, rows, tiles, 2 * intermediate, hidden, topk,
        GATHERS=True, WEIGHS=False, **options,
    )  # fmt: skip
    activate[(rows, triton.cdiv(intermediate, CHUNK))](
        gate_up, activated, intermediate, CHUNK=CHUNK
    )
    product[(tiles * triton.cdiv(hidden, tile["cols"]),)](
        activated, w2, topk_weights, projected, places, owners, rows, tiles, hidden, intermediate,
        topk, GATHERS=False, WEIGHS=True, **options,
    )  # fmt: skip
    add[(tokens, triton.cdiv(hidden, CHUNK))](projected, out, hidden, topk, CHUNK=CHUNK)
    return out
