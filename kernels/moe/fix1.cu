// Grouped GEMM: out[row] = a[row] w[expert]^T; a tile's rows belong to one expert. 64 x 64
// outputs per block, 4 x 4 per thread, stages of 32 along k in shared memory, fp32 FMAs.
#include <cuda_bf16.h>

constexpr int kThreads = 256;
constexpr int kRows = 64, kCols = 64, kDepth = 32;

// Stores eight elements of a row into a transposed (k-major) tile.
__device__ __forceinline__ void store_transposed(float (*tile)[kRows], int depth, int row,
                                                 uint4 chunk) {
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&chunk);
    for (int i = 0; i < 4; ++i) {
        const float2 pair = __bfloat1622float2(pairs[i]);
        tile[depth + 2 * i][row] = pair.x;
        tile[depth + 2 * i + 1][row] = pair.y;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
product(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ w,
        __nv_bfloat16* __restrict__ out, const int4* __restrict__ tiles, int cols, int depth) {
    __shared__ alignas(16) float a_tile[kDepth][kRows], w_tile[kDepth][kCols];
    const int4 tile = tiles[blockIdx.x];
    const int expert = tile.x, first_row = tile.y, end_row = tile.z;
    if (expert < 0) return;
    const int row = threadIdx.x % 64, chunk = threadIdx.x / 64 * 8;
    const int col = blockIdx.y * kCols;
    const __nv_bfloat16* a_row =
        a + static_cast<size_t>(min(first_row + row, end_row - 1)) * depth + chunk;
    const __nv_bfloat16* w_row =
        w + (static_cast<size_t>(expert) * cols + col + row) * depth + chunk;

    const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
    float sums[4][4] = {};
    for (int k = 0; k < depth; k += kDepth) {
        __syncthreads();
        store_transposed(a_tile, chunk, row, *reinterpret_cast<const uint4*>(a_row + k));
        store_transposed(w_tile, chunk, row, *reinterpret_cast<const uint4*>(w_row + k));
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < kDepth; ++i) {
            const float4 a_values = *reinterpret_cast<const float4*>(&a_tile[i][y]);
            const float4 b_values = *reinterpret_cast<const float4*>(&w_tile[i][x]);
            const float l[4] = {a_values.x, a_values.y, a_values.z, a_values.w};
            const float r[4] = {b_values.x, b_values.y, b_values.z, b_values.w};
            for (int m = 0; m < 4; ++m)
                for (int n = 0; n < 4; ++n) sums[m][n] = fmaf(l[m], r[n], sums[m][n]);
        }
    }
    for (int m = 0; m < 4 && first_row + y + m < end_row; ++m) {
        __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(sums[m][0], sums[m][1]),
                                   __floats2bfloat162_rn(sums[m][2], sums[m][3])};
        *reinterpret_cast<uint2*>(out + static_cast<size_t>(first_row + y + m) * cols + col + x) =
            *reinterpret_cast<const uint2*>(pairs);
    }
}
