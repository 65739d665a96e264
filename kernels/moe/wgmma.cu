// As fix5, but the products are wgmma's, straight from shared memory: 64 rows and 128 columns a
// warpgroup, tiles under the 128-byte swizzle in place of padding.
#include <cuda_bf16.h>

#include "hopper.cuh"

constexpr int kRows = ROWS, kCols = 128, kDepth = 64, kStages = STAGES;
constexpr int kThreads = 128 * kRows / 64;
constexpr int kFetched = kThreads / 8;  // rows of a tile at a time
constexpr int kOut = ACTIVATES ? kCols / 2 : kCols;  // columns that a block writes
constexpr int kTile = (kRows + kCols) * kDepth * 2;  // bytes
static_assert(kStages * kTile + 1024 == SHARED_BYTES);

__device__ __forceinline__ float silu(float x) { return x / (1 + __expf(-x)); }

// The row of the weights for a row of their tile: its columns are those of the output, from col on,
// or eight of the gate and eight of the up projection in turn.
__device__ __forceinline__ int weight_row(int row, int col, int cols) {
    if (!ACTIVATES) return col + row;
    return row / 8 % 2 * cols + col + row / 16 * 8 + row % 8;
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
product(const __nv_bfloat16* __restrict__ a, const int* __restrict__ order,
        const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ out,
        const int4* __restrict__ tiles, int topk, int cols, int depth) {
    extern __shared__ unsigned char shared[];
    // Blocks go through the tiles of a group, then on to the next columns, then to the next group.
    const int columns = cols / kOut, most = gridDim.x / columns;
    const int group_tiles = GROUP ? min(GROUP, most) : most;
    const int before = blockIdx.x / (group_tiles * columns) * group_tiles;
    const int here = min(group_tiles, most - before), within = blockIdx.x - before * columns;
    const int4 tile = tiles[before + within % here];
    const int expert = tile.x, first = tile.y, end = tile.z;
    if (expert < 0) return;
    unsigned char* ring = shared + (1024 - shared_address(shared) % 1024) % 1024;
    const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
    const int col = within / here * kOut;
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;  // that the thread fetches
    const unsigned own = shared_address(ring) + row * 128 + (chunk ^ row % 8) * 16;

    const __nv_bfloat16* a_rows[kRows / kFetched];  // of tokens, then of places
    for (int i = 0; i < kRows / kFetched; ++i) {
        const int from = min(first + row + i * kFetched, end - 1);
        a_rows[i] =
            a + static_cast<size_t>(ACTIVATES ? order[from] / topk : from) * depth + chunk * 8;
    }
    const __nv_bfloat16* w_row =
        w + (static_cast<size_t>(expert) * (ACTIVATES ? 2 : 1) * cols + weight_row(row, col, cols)) *
                depth + chunk * 8;
    const size_t next = static_cast<size_t>(ACTIVATES ? kFetched / 2 : kFetched) * depth;

    const auto fetch = [&](int k) {  // a group of copies, empty behind the end
        if (k < depth) {
            const unsigned to = own + k / kDepth % kStages * kTile;
            for (int i = 0; i < kRows / kFetched; ++i)
                copy_chunk(to + i * kFetched * 128, a_rows[i] + k);
            for (int i = 0; i < kCols / kFetched; ++i)
                copy_chunk(to + (kRows + i * kFetched) * 128, w_row + i * next + k);
        }
        copies_commit();
    };
    for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage * kDepth);

    float sums[64];
    for (int k = 0; k < depth; k += kDepth) {
        copies_wait<kStages - 2>();
        async_proxy_fence();
        __syncthreads();  // the tile is there, and the one before it has been read by all
        const unsigned char* at = ring + k / kDepth % kStages * kTile;
        const unsigned left = descriptor(at + group * 64 * 128);
        const unsigned right = descriptor(at + kRows * 128);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kDepth / 16; ++i)
            Wgmma<kCols>::run(sums, left + 2 * i, right + 2 * i, k + i);
        wgmma_commit();
        fetch(k + (kStages - 1) * kDepth);
        wgmma_wait<0>();
    }
    pin(sums);

    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
        const int to = first + threadIdx.x / 32 * 16 + 8 * half + g;
        if (to >= end) continue;
        __nv_bfloat16* own_row = out + static_cast<size_t>(to) * cols + col + 2 * t;
        for (int n = 0; n < 16; ++n) {
            const float* pair = sums + 4 * n + 2 * half;
            if (!ACTIVATES) {
                *reinterpret_cast<__nv_bfloat162*>(own_row + 8 * n) =
                    __floats2bfloat162_rn(pair[0], pair[1]);
            } else if (n % 2) {  // the up projection; its gate is the one before it
                *reinterpret_cast<__nv_bfloat162*>(own_row + n / 2 * 8) = __floats2bfloat162_rn(
                    silu(pair[-4]) * pair[0], silu(pair[-3]) * pair[1]);
            }
        }
    }
}
