// As baseline.cu, but each block copies tiles of 64 keys to shared memory with 16-byte loads. All
// threads of the block read the keys from there.
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int kHeadDim = 64;
constexpr int kThreads = 128;
constexpr int kTile = 64;  // keys per tile

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const __half* __restrict__ q, const __half* __restrict__ k,
                  const __half* __restrict__ v, __half* __restrict__ out,
                  int seq_len, float scale) {
    __shared__ alignas(16) __half k_tile[kTile * kHeadDim], v_tile[kTile * kHeadDim];
    // Threads past the end repeat the last row, because all threads take part in the copies.
    const int row = min(blockIdx.x * kThreads + threadIdx.x, seq_len - 1);
    const size_t head_offset = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;
    const size_t row_offset = head_offset + static_cast<size_t>(row) * kHeadDim;

    float query[kHeadDim], acc[kHeadDim];
    for (int d = 0; d < kHeadDim; ++d) {
        query[d] = __half2float(q[row_offset + d]) * scale;
        acc[d] = 0.0f;
    }

    float row_max = -CUDART_INF_F, row_sum = 0.0f;
    for (int key = 0; key < seq_len; ++key) {
        if (key % kTile == 0) {
            __syncthreads();
            const size_t tile_offset = head_offset + static_cast<size_t>(key) * kHeadDim;
            const int halves = min(kTile, seq_len - key) * kHeadDim;
            for (int i = threadIdx.x * 8; i < halves; i += kThreads * 8) {
                *reinterpret_cast<uint4*>(k_tile + i) =
                    *reinterpret_cast<const uint4*>(k + tile_offset + i);
                *reinterpret_cast<uint4*>(v_tile + i) =
                    *reinterpret_cast<const uint4*>(v + tile_offset + i);
            }
            __syncthreads();
        }
        const __half* k_row = k_tile + key % kTile * kHeadDim;
        const __half* v_row = v_tile + key % kTile * kHeadDim;

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
