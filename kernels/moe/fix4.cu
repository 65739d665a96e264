// As fix3, but the gate/up projection gathers its rows of A from the tokens (GATHERS), without
// a gather kernel.
#include "mma.cuh"

constexpr int kThreads = 256;
constexpr int kRows = 64, kCols = 128, kDepth = 64, kStages = 4;
constexpr int kStride = kDepth + 8;  // padded, so that ldmatrix has no bank conflicts
constexpr int kTile = (kRows + kCols) * kStride;
static_assert(kStages * kTile * 2 == SHARED_BYTES);

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
    const int col = blockIdx.y * kCols;
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8 * 8;  // copied by this thread
    const __nv_bfloat16* w_row =
        w + (static_cast<size_t>(expert) * cols + col + row) * depth + chunk;

    const __nv_bfloat16* a_rows[kRows / (kThreads / 8)];  // GATHERS: of x, else sorted by expert
    for (int i = 0; i < kRows / (kThreads / 8); ++i) {
        const int from = min(first_row + row + i * (kThreads / 8), end_row - 1);
        a_rows[i] =
            a + static_cast<size_t>(GATHERS ? slot_of_row[from] / topk : from) * depth + chunk;
    }

    const auto load_stage = [&](int k) {  // commits one group per stage, empty past the end
        if (k < depth) {
            __nv_bfloat16* a_tile = stages + k / kDepth % kStages * kTile + row * kStride + chunk;
            __nv_bfloat16* w_tile = a_tile + kRows * kStride;
            for (int i = 0; i < kRows; i += kThreads / 8)
                cp_async(a_tile + i * kStride, a_rows[i / (kThreads / 8)] + k);
            for (int i = 0; i < kCols; i += kThreads / 8)
                cp_async(w_tile + i * kStride, w_row + static_cast<size_t>(i) * depth + k);
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
            for (int m = 0; m < 2; ++m)
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
            __nv_bfloat16* out_row = out + static_cast<size_t>(to) * cols + col + x + 2 * t;
            for (int n = 0; n < 4; ++n)
                *reinterpret_cast<__nv_bfloat162*>(out_row + 8 * n) =
                    __floats2bfloat162_rn(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
        }
}
