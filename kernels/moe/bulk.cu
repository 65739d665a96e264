// As wgmma, but TMA loads the tiles of weights, one box per stage. cp.async still gathers the
// rows of tokens.
#include <cuda_bf16.h>

#include "hopper.cuh"

constexpr int kRows = ROWS, kCols = 128, kDepth = 64, kStages = STAGES;
constexpr int kThreads = 128 * kRows / 64;
constexpr int kLoadRows = kThreads / 8;  // rows loaded by one pass of all threads
constexpr int kOut = ACTIVATES ? kCols / 2 : kCols;  // output columns per block
constexpr int kRowBytes = kDepth * 2;
constexpr int kWeights = kCols * kRowBytes, kTile = kRows * kRowBytes + kWeights;
static_assert(kStages * kTile + 2048 == SHARED_BYTES);

__device__ __forceinline__ float silu(float x) { return x / (1 + __expf(-x)); }

extern "C" __global__ void __launch_bounds__(kThreads, 2)
product(const __grid_constant__ TensorMap weights, const __nv_bfloat16* __restrict__ a,
        const int* __restrict__ slot_of_row, __nv_bfloat16* __restrict__ out,
        const int4* __restrict__ tiles, int topk, int cols, int depth) {
    extern __shared__ unsigned char shared[];
    // Order of blocks, for L2 reuse: tiles of a group, then the next columns, then the next group.
    const int columns = cols / kOut, max_tiles = gridDim.x / columns;
    const int group_tiles = GROUP ? min(GROUP, max_tiles) : max_tiles;
    const int group_start = blockIdx.x / (group_tiles * columns) * group_tiles;
    const int group_size = min(group_tiles, max_tiles - group_start);
    const int group_block = blockIdx.x - group_start * columns;
    const int4 tile = tiles[group_start + group_block % group_size];
    const int expert = tile.x, first_row = tile.y, end_row = tile.z;
    if (expert < 0) return;
    unsigned char* stages = shared + (1024 - shared_address(shared) % 1024) % 1024;
    Barrier* full = reinterpret_cast<Barrier*>(stages + kStages * kTile);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) barrier_init(full + stage, 1);
        barrier_init_fence();
    }
    __syncthreads();
    const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
    const int col = group_block / group_size * kOut;
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;  // copied by this thread
    const unsigned thread_base = shared_address(stages) + row * 128 + (chunk ^ row % 8) * 16;

    const __nv_bfloat16* a_rows[kRows / kLoadRows];  // ACTIVATES: of x, else of h
    for (int i = 0; i < kRows / kLoadRows; ++i) {
        const int from = min(first_row + row + i * kLoadRows, end_row - 1);
        const size_t from_row = ACTIVATES ? slot_of_row[from] / topk : from;
        a_rows[i] = a + from_row * depth + chunk * 8;
    }

    const auto load_stage = [&](int k) {  // commits one group per stage, empty past the end
        if (k < depth) {
            const int stage = k / kDepth % kStages;
            for (int i = 0; i < kRows / kLoadRows; ++i)
                cp_async(thread_base + stage * kTile + i * kLoadRows * kRowBytes, a_rows[i] + k);
            if (threadIdx.x == 0) {  // ACTIVATES: 64 rows of gate, 64 of up; else 128
                barrier_expect(full + stage, kWeights);
                tma_load(stages + stage * kTile + kRows * kRowBytes, weights, k, col, 0, expert,
                         full + stage);
            }
        }
        cp_async_commit();
    };
    for (int stage = 0; stage < kStages - 1; ++stage) load_stage(stage * kDepth);

    float sums[64];
    for (int k = 0; k < depth; k += kDepth) {
        barrier_wait(full + k / kDepth % kStages, k / (kDepth * kStages) % 2);
        cp_async_wait<kStages - 2>();
        async_proxy_fence();
        __syncthreads();  // the tile is loaded, and all warps have finished the previous one
        const unsigned char* stage_base = stages + k / kDepth % kStages * kTile;
        const unsigned a_desc = descriptor(stage_base + group * 64 * kRowBytes);
        const unsigned b_desc = descriptor(stage_base + kRows * kRowBytes);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kDepth / 16; ++i)
            Wgmma<kCols>::run(sums, a_desc + 2 * i, b_desc + 2 * i, k + i);
        wgmma_commit();
        load_stage(k + (kStages - 1) * kDepth);
        wgmma_wait<0>();
    }
    fence_operand(sums);

    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
        const int to = first_row + threadIdx.x / 32 * 16 + 8 * half + g;
        if (to >= end_row) continue;
        __nv_bfloat16* out_row = out + static_cast<size_t>(to) * cols + col + 2 * t;
        for (int n = 0; n < kOut / 8; ++n) {
            const float* pair = sums + 4 * n + 2 * half;
            const float* up = pair + kOut / 2;  // ACTIVATES: the up projection of the same column
            *reinterpret_cast<__nv_bfloat162*>(out_row + 8 * n) =
                ACTIVATES ? __floats2bfloat162_rn(silu(pair[0]) * up[0], silu(pair[1]) * up[1])
                          : __floats2bfloat162_rn(pair[0], pair[1]);
        }
    }
}
