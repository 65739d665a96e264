// Flash attention forward in its simplest form: one thread per query row, with an online softmax
// over all keys. Every thread reads K and V from global memory.
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int kHeadDim = 64;
constexpr int kThreads = 128;

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const __half* __restrict__ q, const __half* __restrict__ k,
                  const __half* __restrict__ v, __half* __restrict__ out,
                  int seq_len, float scale) {
    const int row = blockIdx.x * kThreads + threadIdx.x;
    if (row >= seq_len) return;
    const size_t head_offset = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;
    const size_t row_offset = head_offset + static_cast<size_t>(row) * kHeadDim;

    float query[kHeadDim], acc[kHeadDim];
    for (int d = 0; d < kHeadDim; ++d) {
        query[d] = __half2float(q[row_offset + d]) * scale;
        acc[d] = 0.0f;
    }

    float row_max = -CUDART_INF_F, row_sum = 0.0f;
    for (int key = 0; key < seq_len; ++key) {
        const __half* k_row = k + head_offset + static_cast<size_t>(key) * kHeadDim;
        const __half* v_row = v + head_offset + static_cast<size_t>(key) * kHeadDim;

        float score = 0.0f;
        for (int d = 0; d < kHeadDim; ++d) score += query[d] * __half2float(k_row[d]);

        const float new_max = fmaxf(row_max, score);
        const float rescale = __expf(row_max - new_max);
        const float p = __expf(score - new_max);
        row_sum = row_sum * rescale + p;
        row_max = new_max;
        for (int d = 0; d < kHeadDim; ++d) acc[d] = acc[d] * rescale + p * __half2float(v_row[d]);
    }

    for (int d = 0; d < kHeadDim; ++d) out[row_offset + d] = __float2half(acc[d] / row_sum);
}
