// As fix1, but four neighbouring threads share a query row: each walks every fourth key with its
// own online softmax, and shuffles merge the four partial results at the end.
#include <cuda_fp16.h>

constexpr int kHeadDim = 64;
constexpr int kThreads = 32 * WARPS;
constexpr int kTile = 64;  // keys in shared memory at a time
constexpr int kSplit = 4;  // threads that share a query row
constexpr int kStride = kHeadDim + 8;  // padded: the four rows read together lie in other banks

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const __half* __restrict__ q, const __half* __restrict__ k,
                  const __half* __restrict__ v, __half* __restrict__ out,
                  int seq_len, float scale) {
    __shared__ alignas(16) __half k_tile[kTile * kStride], v_tile[kTile * kStride];
    // Threads past the end repeat the last row: every thread has to take part in the copies.
    const int row = min((blockIdx.x * kThreads + threadIdx.x) / kSplit, seq_len - 1);
    const int part = threadIdx.x % kSplit;
    const size_t head = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;
    const size_t mine = head + static_cast<size_t>(row) * kHeadDim;

    float query[kHeadDim], acc[kHeadDim];
    for (int d = 0; d < kHeadDim; ++d) {
        query[d] = __half2float(q[mine + d]) * scale;
        acc[d] = 0.0f;
    }

    float row_max = -1e30f, row_sum = 0.0f;
    for (int key = 0; key < seq_len; key += kSplit) {
        if (key % kTile == 0) {
            __syncthreads();
            const size_t tile = head + static_cast<size_t>(key) * kHeadDim;
            const int halves = min(kTile, seq_len - key) * kHeadDim;
            for (int i = threadIdx.x * 8; i < halves; i += kThreads * 8) {
                const int to = i / kHeadDim * kStride + i % kHeadDim;
                *reinterpret_cast<uint4*>(k_tile + to) = *reinterpret_cast<const uint4*>(k + tile + i);
                *reinterpret_cast<uint4*>(v_tile + to) = *reinterpret_cast<const uint4*>(v + tile + i);
            }
            __syncthreads();
        }
        if (key + part >= seq_len) break;
        const __half* k_row = k_tile + (key + part) % kTile * kStride;
        const __half* v_row = v_tile + (key + part) % kTile * kStride;

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
        if (d * kSplit / kHeadDim == part) out[mine + d] = __float2half(acc[d] / row_sum);
}
