// As fix1, on the tensor cores (mma.sync): 64 x 128 outputs a block, 32 x 32 a warp, 64 of what is
// summed over in shared memory at a time.
#include "mma.cuh"

constexpr int kThreads = 256;
constexpr int kRows = 64, kCols = 128, kDepth = 64;
constexpr int kStride = kDepth + 8;  // padded: the eight rows of a fragment lie in other banks

extern "C" __global__ void __launch_bounds__(kThreads)
product(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ w,
        __nv_bfloat16* __restrict__ out, const int4* __restrict__ tiles, int cols, int depth) {
    __shared__ alignas(16) __nv_bfloat16 a_tile[kRows * kStride], w_tile[kCols * kStride];
    const int4 tile = tiles[blockIdx.x];
    const int expert = tile.x, first = tile.y, end = tile.z;
    if (expert < 0) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int y = warp % 2 * 32, x = warp / 2 * 32;  // of the warp's outputs
    const int col = blockIdx.y * kCols;
    const int row = threadIdx.x / 8, piece = threadIdx.x % 8 * 8;  // that the thread fetches
    const __nv_bfloat16* w_row =
        w + (static_cast<size_t>(expert) * cols + col + row) * depth + piece;

    float sums[2][4][4] = {};
    for (int k = 0; k < depth; k += kDepth) {
        __syncthreads();
        for (int i = row; i < kRows; i += kThreads / 8)
            *reinterpret_cast<uint4*>(a_tile + i * kStride + piece) =
                *reinterpret_cast<const uint4*>(
                    a + static_cast<size_t>(min(first + i, end - 1)) * depth + k + piece);
        for (int i = 0; i < kCols; i += kThreads / 8)
            *reinterpret_cast<uint4*>(w_tile + (row + i) * kStride + piece) =
                *reinterpret_cast<const uint4*>(w_row + static_cast<size_t>(i) * depth + k);
        __syncthreads();
        for (int step = 0; step < kDepth; step += 16) {
            unsigned left[2][4], right[2][4];
            for (int m = 0; m < 2; ++m)
                load_matrices(left[m],
                              a_part<kStride>(a_tile + (y + 16 * m) * kStride + step, lane));
            for (int n = 0; n < 2; ++n)
                load_matrices(right[n],
                              b_part<kStride>(w_tile + (x + 16 * n) * kStride + step, lane));
            for (int m = 0; m < 2; ++m)
                for (int n = 0; n < 4; ++n)
                    mma(sums[m][n], left[m], right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]);
        }
    }

    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < 2; ++m)
        for (int half = 0; half < 2; ++half) {
            const int to = first + y + 16 * m + 8 * half + g;
            if (to >= end) continue;
            __nv_bfloat16* own = out + static_cast<size_t>(to) * cols + col + x + 2 * t;
            for (int n = 0; n < 4; ++n)
                *reinterpret_cast<__nv_bfloat162*>(own + 8 * n) =
                    __floats2bfloat162_rn(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
        }
}
