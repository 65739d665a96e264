// As wgmma, but the tiles of weights come by bulk copies (TMA), one a stage; rows of tokens, wherever
// they stand, still come by cp.async.
#include <cuda_bf16.h>

#include "hopper.cuh"

constexpr int kRows = ROWS, kCols = 128, kDepth = 64, kStages = STAGES;
constexpr int kThreads = 128 * kRows / 64;
constexpr int kFetched = kThreads / 8;  // rows of a tile at a time
constexpr int kOut = ACTIVATES ? kCols / 2 : kCols;  // columns that a block writes
constexpr int kRowBytes = kDepth * 2;
constexpr int kWeights = kCols * kRowBytes, kTile = kRows * kRowBytes + kWeights;
static_assert(kStages * kTile + 2048 == SHARED_BYTES);

__device__ __forceinline__ float silu(float x) { return x / (1 + __expf(-x)); }

extern "C" __global__ void __launch_bounds__(kThreads, 2)
product(const __grid_constant__ TensorMap weights, const __nv_bfloat16* __restrict__ a,
        const int* __restrict__ order, __nv_bfloat16* __restrict__ out,
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
    Barrier* full = reinterpret_cast<Barrier*>(ring + kStages * kTile);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) barrier_init(full + stage, 1);
        barrier_init_fence();
    }
    __syncthreads();
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

    const auto fetch = [&](int k) {  // a group of copies, empty behind the end
        if (k < depth) {
            const int stage = k / kDepth % kStages;
            for (int i = 0; i < kRows / kFetched; ++i)
                copy_chunk(own + stage * kTile + i * kFetched * kRowBytes, a_rows[i] + k);
            if (threadIdx.x == 0) {  // of the gate and of the up projection 64 rows each, or 128
                barrier_expect(full + stage, kWeights);
                copy_box(ring + stage * kTile + kRows * kRowBytes, weights, k, col, 0, expert,
                         full + stage);
            }
        }
        copies_commit();
    };
    for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage * kDepth);

    float sums[64];
    for (int k = 0; k < depth; k += kDepth) {
        barrier_wait(full + k / kDepth % kStages, k / (kDepth * kStages) % 2);
        copies_wait<kStages - 2>();
        async_proxy_fence();
        __syncthreads();  // the tile is there, and the one before it has been read by all
        const unsigned char* at = ring + k / kDepth % kStages * kTile;
        const unsigned left = descriptor(at + group * 64 * kRowBytes);
        const unsigned right = descriptor(at + kRows * kRowBytes);
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
        for (int n = 0; n < kOut / 8; ++n) {
            const float* pair = sums + 4 * n + 2 * half;
            const float* up = pair + kOut / 2;  // of the same columns, where there is one
            *reinterpret_cast<__nv_bfloat162*>(own_row + 8 * n) =
                ACTIVATES ? __floats2bfloat162_rn(silu(pair[0]) * up[0], silu(pair[1]) * up[1])
                          : __floats2bfloat162_rn(pair[0], pair[1]);
        }
    }
}
