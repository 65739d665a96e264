// As vectorised, with tiles fetched and written by the copy engine (TMA): in boxes of 128 bytes by
// the height of a tile, with piece p of row r at p ^ r % 8, or with SWIZZLE=0 as one box, as it is. A
// thread again transposes a square; those of eight neighbours lie on a diagonal, so that reading
// and writing them both meet every bank once, either way.
#include "element.cuh"

constexpr int kPieces = 16, kTile = kPieces * kVector;
constexpr int kAcross = SWIZZLE ? 8 : kPieces, kBoxes = kPieces / kAcross;  // pieces of a box's row

struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

struct alignas(1024) Shared {
    Chunk in[kBoxes][kTile][kAcross], out[kBoxes][kTile][kAcross];
    unsigned long long full;
};
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void fetch(const void* to, const TensorMap& map, int col, int row,
                                      const void* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(col), "r"(row),
                   "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void send(const TensorMap& map, int col, int row, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                 " [%0, {%1, %2}], [%3];"
                 ::"l"(&map), "r"(col), "r"(row), "r"(shared_address(from)) : "memory");
}

// Piece ``8 * eighth + piece`` of a row of the tile.
__device__ __forceinline__ Chunk& at(Chunk (&tile)[kBoxes][kTile][kAcross], int row, int eighth,
                                     int piece) {
    return SWIZZLE ? tile[eighth][row][piece ^ row % 8] : tile[0][row][eighth * 8 + piece];
}

extern "C" __global__ void __launch_bounds__(256)
transpose(const __grid_constant__ TensorMap in_map, const __grid_constant__ TensorMap out_map) {
    extern __shared__ char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int first_col = blockIdx.x * kTile, first_row = blockIdx.y * kTile;
    const unsigned full = shared_address(&s.full);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     ::"r"(full), "r"(static_cast<int>(sizeof(s.in))) : "memory");
        for (int box = 0; box < kBoxes; ++box)
            fetch(s.in[box], in_map, first_col + box * kAcross * kVector, first_row, &s.full);
    }
    __syncthreads();
    unsigned done;
    do {
        asm volatile("{.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(full) : "memory");
    } while (!done);

    const int i = threadIdx.x % 8, j = i ^ threadIdx.x / 8 % 8;
    const int lower = threadIdx.x / 64 % 2, right = threadIdx.x / 128;
    Chunk square[kVector];
#pragma unroll
    for (int t = 0; t < kVector; ++t)
        square[t] = at(s.in, (lower * 8 + i) * kVector + t, right, j);
#pragma unroll
    for (int t = 0; t < kVector; ++t)
        at(s.out, (right * 8 + j) * kVector + t, lower, i) = column(square, t);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int box = 0; box < kBoxes; ++box)
            send(out_map, first_row + box * kAcross * kVector, first_col, s.out[box]);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}
