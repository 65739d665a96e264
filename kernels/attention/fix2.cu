// As fix1.cu, but four adjacent threads share a query row. Each takes every fourth key and has its
// own online softmax. Shuffles merge the four partial results at the end.
#include <cuda_fp16.h>

constexpr int kHeadDim = 64;
constexpr int kThreads = 32 * WARPS;
constexpr int kTile = 64;  // keys per tile
constexpr int kSplit = 4;  // threads per query row
constexpr int kStride = kHeadDim + 8;  // padded: a warp reads four rows without bank conflicts

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const __half* __restrict__ q, const __half* __restrict__ k,
                  const __half* __restrict__ v, __half* __restrict__ out,
                  int seq_len, float scale) {
    __shared__ alignas(16) __half k_tile[kTile * kStride], v_tile[kTile * kStride];
    // Threads past the end repeat the last row, because all threads take part in the copies.
    const int row = min((blockIdx.x * kThreads + threadIdx.x) / kSplit, seq_len - 1);
    const int split = threadIdx.x % kSplit;
    const size_t head_offset = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;
    const size_t row_offset = head_offset + static_cast<size_t>(row) * kHeadDim;

    float query[kHeadDim], acc[kHeadDim];
    for (int d = 0; d < kHeadDim; ++d) {
        query[d] = __half2float(q[row_offset + d]) * scale;
        acc[d] = 0.0f;
    }

    float row_max = -1e30f, row_sum = 0.0f;
    for (int key = 0; key < seq_len; key += kSplit) {
        if (key % kTile == 0) {
            __syncthreads();
            const size_t tile_offset = head_offset + static_cast<size_t>(key) * kHeadDim;
            const int halves = min(kTile, seq_len - key) * kHeadDim;
            for (int i = threadIdx.x * 8; i < halves; i += kThreads * 8) {
                const int dst = i / kHeadDim * kStride + i % kHeadDim;
                *reinterpret_cast<uint4*>(k_tile + dst) =
                    *reinterpret_cast<const uint4*>(k + tile_offset + i);
                *reinterpret_cast<uint4*>(v_tile + dst) =
                    *reinterpret_cast<const uint4*>(v + tile_offset + i);
            }
            __syncthreads();
        }
        if (key + split >= seq_len) break;
        const __half* k_row = k_tile + (key + split) % kTile * kStride;
        const __half* v_row = v_tile + (key + split) % kTile * kStride;

        float score = 0.0f;
        for (int d = 0; d < kHeadDim; ++d) score += query[d] * __half2float(k_row[d]);

        const float new_max = fmaxf(row_max, score);
        const float rescale = __expf(row_max - new_max);
        const float p = __expf(score - new_max);
        row_sum = row_sum * rescale + p;
        row_max = new_max;
        for (int d = 0; d < kHeadDim; ++d) acc[d] = acc[d] * rescale + p * __half2float(v_row[d]);
    }

    for (int lane = 1; lane < kSplit; lane *= 2) {
        const float new_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, lane));
        const float rescale = __expf(row_max - new_max);
        row_max = new_max;
        row_sum *= rescale;
        row_sum += __shfl_xor_sync(~0u, row_sum, lane);
        for (int d = 0; d < kHeadDim; ++d) {
            acc[d] *= rescale;
            acc[d] += __shfl_xor_sync(~0u, acc[d], lane);
        }
    }
    for (int d = 0; d < kHeadDim; ++d)
        if (d * kSplit / kHeadDim == split) out[row_offset + d] = __float2half(acc[d] / row_sum);
}
