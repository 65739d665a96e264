// The definition, twice: a thread an element of the activated products, then a thread an element of
// the output. Weights are read 16 bytes a load; nothing is shared but by the caches.
#include <cuda_bf16.h>

constexpr int kThreads = 128;

// What two pieces of eight elements add to a sum of products.
__device__ __forceinline__ float dot(uint4 a, uint4 b, float sum) {
    const __nv_bfloat162* x = reinterpret_cast<const __nv_bfloat162*>(&a);
    const __nv_bfloat162* y = reinterpret_cast<const __nv_bfloat162*>(&b);
    for (int i = 0; i < 4; ++i) {
        const float2 u = __bfloat1622float2(x[i]), v = __bfloat1622float2(y[i]);
        sum = fmaf(u.x, v.x, sum);
        sum = fmaf(u.y, v.y, sum);
    }
    return sum;
}

__device__ __forceinline__ const uint4* pieces(const __nv_bfloat16* row) {
    return reinterpret_cast<const uint4*>(row);
}

// activated[row, j] = silu(x . gate_j) * (x . up_j), where row is a token and one of its experts.
extern "C" __global__ void __launch_bounds__(kThreads)
activate(const __nv_bfloat16* __restrict__ x, const int* __restrict__ ids,
         const __nv_bfloat16* __restrict__ w13, __nv_bfloat16* __restrict__ activated, int topk,
         int hidden, int intermediate) {
    const int row = blockIdx.x, j = blockIdx.y * kThreads + threadIdx.x;
    const size_t first = static_cast<size_t>(ids[row]) * 2 * intermediate;
    const uint4* token = pieces(x + static_cast<size_t>(row / topk) * hidden);
    const uint4* gate = pieces(w13 + (first + j) * hidden);
    const uint4* up = pieces(w13 + (first + intermediate + j) * hidden);
    float g = 0, u = 0;
    for (int i = 0; i < hidden / 8; ++i) {
        g = dot(token[i], gate[i], g);
        u = dot(token[i], up[i], u);
    }
    activated[static_cast<size_t>(row) * intermediate + j] =
        __float2bfloat16(g / (1 + __expf(-g)) * u);
}

// out[t, n] = sum over the experts of t of weight * (activated . down_n).
extern "C" __global__ void __launch_bounds__(kThreads)
project(const __nv_bfloat16* __restrict__ activated, const int* __restrict__ ids,
        const float* __restrict__ weights, const __nv_bfloat16* __restrict__ w2,
        __nv_bfloat16* __restrict__ out, int topk, int hidden, int intermediate) {
    const int token = blockIdx.x, n = blockIdx.y * kThreads + threadIdx.x;
    float sum = 0;
    for (int row = token * topk; row < (token + 1) * topk; ++row) {
        const uint4* a = pieces(activated + static_cast<size_t>(row) * intermediate);
        const uint4* down =
            pieces(w2 + (static_cast<size_t>(ids[row]) * hidden + n) * intermediate);
        float own = 0;
        for (int i = 0; i < intermediate / 8; ++i) own = dot(a[i], down[i], own);
        sum = fmaf(weights[row], own, sum);
    }
    out[static_cast<size_t>(token) * hidden + n] = __float2bfloat16(sum);
}
