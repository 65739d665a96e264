// As fix4, with the activation in the epilogue: a block of the gate/up projection has 64 gate and
// 64 up columns, interleaved by eight, so a thread has both accumulators.
// TRIM: skips 16-row fragments past the last row of the tile.
#include "mma.cuh"

constexpr int kThreads = 256;
constexpr int kRows = 64, kCols = 128, kDepth = 64, kStages = 4;
constexpr int kStride = kDepth + 8;  // padded, so that ldmatrix has no bank conflicts
constexpr int kOut = ACTIVATES ? kCols / 2 : kCols;  // output columns per block
constexpr int kTile = (kRows + kCols) * kStride;
static_assert(kStages * kTile * 2 == SHARED_BYTES);

__device__ __forceinline__ float silu(float x) { return x / (1 + __expf(-x)); }

// Maps a row of the weight tile to a row of the weights: consecutive rows from col on, or eight of
// gate and eight of up in turn.
__device__ __forceinline__ int weight_row(int row, int col, int cols) {
    if (!ACTIVATES) return col + row;
    return row / 8 % 2 * cols + col + row / 16 * 8 + row % 8;
}

__device__ __forceinline__ void cp_async(__nv_bfloat16* to, const __nv_bfloat16* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
product(const __nv_bfloat16* __restrict__ a, const int* __restrict__ slot_of_row,
        const __nv_bfloat16* __restrict__ w, __nv_bfloat16* __restrict__ out,
        const int4* __restrict__ tiles, int topk, int cols, int depth) {
    extern __shared__ __align__(16) __nv_bfloat16 stages[];
    const int4 tile = tiles[blockIdx.x];
    const int expert = tile.x, first_row = tile.y, end_row = tile.z;
    if (expert < 0) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int y = warp % 2 * 32, x = warp / 2 * 32;  // the warp's outputs
    const int fragments = TRIM ? (end_row - first_row - y + 15) / 16 : 2;  // of 16 rows
    const int col = blockIdx.y * kOut;
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8 * 8;  // copied by this thread
    const __nv_bfloat16* w_expert =
        w + static_cast<size_t>(expert) * (ACTIVATES ? 2 : 1) * cols * depth + chunk;

    const __nv_bfloat16* a_rows[kRows / (kThreads / 8)];  // ACTIVATES: of x, else of h
    for (int i = 0; i < kRows / (kThreads / 8); ++i) {
        const int from = min(first_row + row + i * (kThreads / 8), end_row - 1);
        a_rows[i] =
            a + static_cast<size_t>(ACTIVATES ? slot_of_row[from] / topk : from) * depth + chunk;
    }

    const auto load_stage = [&](int k) {  // commits one group per stage, empty past the end
        if (k < depth) {
            __nv_bfloat16* a_tile = stages + k / kDepth % kStages * kTile + row * kStride + chunk;
            __nv_bfloat16* w_tile = a_tile + kRows * kStride;
            for (int i = 0; i < kRows; i += kThreads / 8)
                cp_async(a_tile + i * kStride, a_rows[i / (kThreads / 8)] + k);
            for (int i = 0; i < kCols; i += kThreads / 8) {
                const size_t from = weight_row(row + i, col, cols);
                cp_async(w_tile + i * kStride, w_expert + from * depth + k);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int stage = 0; stage < kStages - 1; ++stage) load_stage(stage * kDepth);

    float sums[2][4][4] = {};
    for (int k = 0; k < depth; k += kDepth) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncthreads();  // the tile is loaded, and all warps have read the previous one
        load_stage(k + (kStages - 1) * kDepth);
        const __nv_bfloat16* a_tile = stages + k / kDepth % kStages * kTile;
        const __nv_bfloat16* w_tile = a_tile + kRows * kStride;
        for (int step = 0; step < kDepth; step += 16) {
            unsigned a_frag[2][4], b_frag[2][4];
            for (int m = 0; m < 2; ++m)
                ldmatrix_x4(a_frag[m],
                            a_lane_row<kStride>(a_tile + (y + 16 * m) * kStride + step, lane));
            for (int n = 0; n < 2; ++n)
                ldmatrix_x4(b_frag[n],
                            b_lane_row<kStride>(w_tile + (x + 16 * n) * kStride + step, lane));
            for (int m = 0; m < 2 && m < fragments; ++m)
                for (int n = 0; n < 4; ++n)
                    mma(sums[m][n], a_frag[m], b_frag[n / 2][n % 2 * 2],
                        b_frag[n / 2][n % 2 * 2 + 1]);
        }
    }

    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < 2; ++m)
        for (int half = 0; half < 2; ++half) {
            const int to = first_row + y + 16 * m + 8 * half + g;
            if (to >= end_row) continue;
            __nv_bfloat16* out_row = out + static_cast<size_t>(to) * cols + col + 2 * t;
            for (int n = 0; n < 4; ++n) {
                const float u = sums[m][n][2 * half], v = sums[m][n][2 * half + 1];
                if (!ACTIVATES) {
                    *reinterpret_cast<__nv_bfloat162*>(out_row + x + 8 * n) =
                        __floats2bfloat162_rn(u, v);
                } else if (n % 2) {  // the up projection; fragment n - 1 is its gate
                    const float* gate = sums[m][n - 1] + 2 * half;
                    *reinterpret_cast<__nv_bfloat162*>(out_row + x / 2 + n / 2 * 8) =
                        __floats2bfloat162_rn(silu(gate[0]) * u, silu(gate[1]) * v);
                }
            }
        }
}
