// out[p] = a[p] w[expert]^T for places p of a tile, all of one expert: 64 x 64 outputs a block, 32
// of what is summed over in shared memory at a time, four by four outputs a thread.
#include <cuda_bf16.h>

constexpr int kThreads = 256;
constexpr int kRows = 64, kCols = 64, kDepth = 32;

// Eight elements of a row into a tile whose rows are what is summed over.
__device__ __forceinline__ void put(float (*tile)[kRows], int depth, int row, uint4 piece) {
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&piece);
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
    const int expert = tile.x, first = tile.y, end = tile.z;
    if (expert < 0) return;
    const int row = threadIdx.x % 64, piece = threadIdx.x / 64 * 8;
    const int col = blockIdx.y * kCols;
    const __nv_bfloat16* a_row = a + static_cast<size_t>(min(first + row, end - 1)) * depth + piece;
    const __nv_bfloat16* w_row =
        w + (static_cast<size_t>(expert) * cols + col + row) * depth + piece;

    const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
    float sums[4][4] = {};
    for (int k = 0; k < depth; k += kDepth) {
        __syncthreads();
        put(a_tile, piece, row, *reinterpret_cast<const uint4*>(a_row + k));
        put(w_tile, piece, row, *reinterpret_cast<const uint4*>(w_row + k));
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < kDepth; ++i) {
            const float4 left = *reinterpret_cast<const float4*>(&a_tile[i][y]);
            const float4 right = *reinterpret_cast<const float4*>(&w_tile[i][x]);
            const float l[4] = {left.x, left.y, left.z, left.w};
            const float r[4] = {right.x, right.y, right.z, right.w};
            for (int m = 0; m < 4; ++m)
                for (int n = 0; n < 4; ++n) sums[m][n] = fmaf(l[m], r[n], sums[m][n]);
        }
    }
    for (int m = 0; m < 4 && first + y + m < end; ++m) {
        __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(sums[m][0], sums[m][1]),
                                   __floats2bfloat162_rn(sums[m][2], sums[m][3])};
        *reinterpret_cast<uint2*>(out + static_cast<size_t>(first + y + m) * cols + col + x) =
            *reinterpret_cast<const uint2*>(pairs);
    }
}
