// As fix1, on tensor cores (mma.sync): 64 x 128 outputs per block, 32 x 32 per warp, stages of 64
// along k in shared memory.
#include "mma.cuh"

constexpr int kThreads = 256;
constexpr int kRows = 64, kCols = 128, kDepth = 64;
constexpr int kStride = kDepth + 8;  // padded, so that ldmatrix has no bank conflicts

extern "C" __global__ void __launch_bounds__(kThreads)
product(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ w,
        __nv_bfloat16* __restrict__ out, const int4* __restrict__ tiles, int cols, int depth) {
    __shared__ alignas(16) __nv_bfloat16 a_tile[kRows * kStride], w_tile[kCols * kStride];
    const int4 tile = tiles[blockIdx.x];
    const int expert = tile.x, first_row = tile.y, end_row = tile.z;
    if (expert < 0) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int y = warp % 2 * 32, x = warp / 2 * 32;  // the warp's outputs
    const int col = blockIdx.y * kCols;
    const int row = threadIdx.x / 8, chunk = threadIdx.x % 8 * 8;  // copied by this thread
    const __nv_bfloat16* w_row =
        w + (static_cast<size_t>(expert) * cols + col + row) * depth + chunk;

    float sums[2][4][4] = {};
    for (int k = 0; k < depth; k += kDepth) {
        __syncthreads();
        for (int i = row; i < kRows; i += kThreads / 8)
            *reinterpret_cast<uint4*>(a_tile + i * kStride + chunk) =
                *reinterpret_cast<const uint4*>(
                    a + static_cast<size_t>(min(first_row + i, end_row - 1)) * depth + k + chunk);
        for (int i = 0; i < kCols; i += kThreads / 8)
            *reinterpret_cast<uint4*>(w_tile + (row + i) * kStride + chunk) =
                *reinterpret_cast<const uint4*>(w_row + static_cast<size_t>(i) * depth + k);
        __syncthreads();
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
