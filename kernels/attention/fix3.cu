// As fix2.cu, but both products use half2 multiply-adds, four keys at a time. At most four products
// are summed in fp16 before they are added in fp32. That is still too inaccurate for outliers.
#include <cuda_fp16.h>

constexpr int kHeadDim = 64;
constexpr int kThreads = 128;
constexpr int kTile = 64;     // keys per tile
constexpr int kSplit = 4;     // threads per query row
constexpr int kKeyBatch = 4;  // keys per thread and iteration
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

    __half2 query[kHeadDim / 2];
    float acc[kHeadDim];
    for (int d = 0; d < kHeadDim; ++d) {
        acc[d] = 0.0f;
        if (d % 2 == 0)
            query[d / 2] = __floats2half2_rn(__half2float(q[row_offset + d]) * scale,
                                             __half2float(q[row_offset + d + 1]) * scale);
    }

    float row_max = -1e30f, row_sum = 0.0f;
    for (int key = 0; key < seq_len; key += kSplit * kKeyBatch) {
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
        float score[kKeyBatch], new_max = row_max;
        const __half2* v_row[kKeyBatch];
        for (int j = 0; j < kKeyBatch; ++j) {
            const int index = key + j * kSplit + split;
            const int row_start = min(index, seq_len - 1) % kTile * kStride;
            const __half2* k_row = reinterpret_cast<const __half2*>(k_tile + row_start);
            v_row[j] = reinterpret_cast<const __half2*>(v_tile + row_start);
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
        __half2 p[kKeyBatch];
        for (int j = 0; j < kKeyBatch; ++j) {
            const float weight = score[j] > -1e30f ? __expf(score[j] - new_max) : 0.0f;
            row_sum += weight;
            p[j] = __float2half2_rn(weight);
        }
        for (int d = 0; d < kHeadDim / 2; ++d) {
            __half2 sum = __hmul2(p[0], v_row[0][d]);
            for (int j = 1; j < kKeyBatch; ++j) sum = __hfma2(p[j], v_row[j][d], sum);
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
        if (d * kSplit / kHeadDim == split) out[row_offset + d] = __float2half(acc[d] / row_sum);
}
