// The definition as two kernels: one thread per element of the activated gate/up projection, then
// one thread per element of the output. 16-byte loads, no shared memory.
#include <cuda_bf16.h>

constexpr int kThreads = 128;

// Adds the dot product of two 16-byte chunks to sum.
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

__device__ __forceinline__ const uint4* as_chunks(const __nv_bfloat16* row) {
    return reinterpret_cast<const uint4*>(row);
}

// activated[slot, j] = silu(x . gate_j) * (x . up_j); a slot is one expert of one token.
extern "C" __global__ void __launch_bounds__(kThreads)
activate(const __nv_bfloat16* __restrict__ x, const int* __restrict__ ids,
         const __nv_bfloat16* __restrict__ w13, __nv_bfloat16* __restrict__ activated, int topk,
         int hidden, int intermediate) {
    const int slot = blockIdx.x, j = blockIdx.y * kThreads + threadIdx.x;
    const size_t first_row = static_cast<size_t>(ids[slot]) * 2 * intermediate;
    const uint4* token = as_chunks(x + static_cast<size_t>(slot / topk) * hidden);
    const uint4* gate = as_chunks(w13 + (first_row + j) * hidden);
    const uint4* up = as_chunks(w13 + (first_row + intermediate + j) * hidden);
    float g = 0, u = 0;
    for (int i = 0; i < hidden / 8; ++i) {
        g = dot(token[i], gate[i], g);
        u = dot(token[i], up[i], u);
    }
    activated[static_cast<size_t>(slot) * intermediate + j] =
        __float2bfloat16(g / (1 + __expf(-g)) * u);
}

// out[t, n] = sum over the experts of t of weight * (activated . down_n).
extern "C" __global__ void __launch_bounds__(kThreads)
project(const __nv_bfloat16* __restrict__ activated, const int* __restrict__ ids,
        const float* __restrict__ weights, const __nv_bfloat16* __restrict__ w2,
        __nv_bfloat16* __restrict__ out, int topk, int hidden, int intermediate) {
    const int token = blockIdx.x, n = blockIdx.y * kThreads + threadIdx.x;
    float sum = 0;
    for (int slot = token * topk; slot < (token + 1) * topk; ++slot) {
        const uint4* a = as_chunks(activated + static_cast<size_t>(slot) * intermediate);
        const uint4* down =
            as_chunks(w2 + (static_cast<size_t>(ids[slot]) * hidden + n) * intermediate);
        float product = 0;
        for (int i = 0; i < intermediate / 8; ++i) product = dot(a[i], down[i], product);
        sum = fmaf(weights[slot], product, sum);
    }
    out[static_cast<size_t>(token) * hidden + n] = __float2bfloat16(sum);
}
