// As fix2, but a thread takes four keys at a time and multiplies in pairs of halves: at most four
// products are summed in fp16, everything beyond that in fp32.
#include <cuda_fp16.h>

constexpr int kHeadDim = 64;
constexpr int kThreads = 128;
constexpr int kTile = 64;  // keys in shared memory at a time
constexpr int kSplit = 4;  // threads that share a query row
constexpr int kGroup = 4;  // keys a thread takes at a time
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

    __half2 query[kHeadDim / 2];
    float acc[kHeadDim];
    for (int d = 0; d < kHeadDim; ++d) {
        acc[d] = 0.0f;
        if (d % 2 == 0)
            query[d / 2] = __floats2half2_rn(__half2float(q[mine + d]) * scale,
                                             __half2float(q[mine + d + 1]) * scale);
    }

    float row_max = -1e30f, row_sum = 0.0f;
    for (int key = 0; key < seq_len; key += kSplit * kGroup) {
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
        float score[kGroup], new_max = row_max;
        const __half2* v_row[kGroup];
        for (int j = 0; j < kGroup; ++j) {
            const int index = key + j * kSplit + part;
            const int at = min(index, seq_len - 1) % kTile * kStride;
            const __half2* k_row = reinterpret_cast<const __half2*>(k_tile + at);
            v_row[j] = reinterpret_cast<const __half2*>(v_tile + at);
            score[j] = 0.0f;
            for (int d = 0; d < kHeadDim / 2; d += 4) {
                __half2 sum = __hmul2(query[d], k_row[d]);
                for (int i = 1; i < 4; ++i) sum = __hfma2(query[d + i], k_row[d + i], sum);
                score[j] += __low2float(sum) + __high2float(sum);
            }
            if (index >= seq_len) score[j] = -1e30f;
            new_max = fmaxf(new_max, score[j]);
        }

        const float rescale = __expf(row_max - new_max);
        row_sum *= rescale;
        row_max = new_max;
        __half2 p[kGroup];
        for (int j = 0; j < kGroup; ++j) {
            const float weight = score[j] > -1e30f ? __expf(score[j] - new_max) : 0.0f;
            row_sum += weight;
            p[j] = __float2half2_rn(weight);
        }
        for (int d = 0; d < kHeadDim / 2; ++d) {
            __half2 sum = __hmul2(p[0], v_row[0][d]);
            for (int j = 1; j < kGroup; ++j) sum = __hfma2(p[j], v_row[j][d], sum);
            acc[2 * d] = acc[2 * d] * rescale + __low2float(sum);
            acc[2 * d + 1] = acc[2 * d + 1] * rescale + __high2float(sum);
        }
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
