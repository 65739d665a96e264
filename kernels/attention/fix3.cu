// As fix2, but the block copies 64 keys at a time into shared memory and works from there.
#include <cuda_fp16.h>

constexpr int kHeadDim = 64;
constexpr int kThreads = 128;
constexpr int kSplit = 4;  // threads that share a query row
constexpr int kTile = 64;  // keys in shared memory at a time
constexpr int kStride = kHeadDim + 8;  // 16 bytes of padding: four neighbouring rows, other banks

// Eight consecutive halves in one 16-byte load.
__device__ __forceinline__ void load8(const __half* from, float (&to)[8]) {
    const uint4 packed = *reinterpret_cast<const uint4*>(from);
    const __half2* pairs = reinterpret_cast<const __half2*>(&packed);
    for (int i = 0; i < 4; ++i) {
        const float2 pair = __half22float2(pairs[i]);
        to[2 * i] = pair.x;
        to[2 * i + 1] = pair.y;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const __half* __restrict__ q, const __half* __restrict__ k,
                  const __half* __restrict__ v, __half* __restrict__ out,
                  int seq_len, float scale) {
    const int part = threadIdx.x % kSplit;
    // Rows past the end repeat the last one: every lane has to take part in the shuffles.
    const int row = min(static_cast<int>(blockIdx.x * kThreads + threadIdx.x) / kSplit, seq_len - 1);
    const size_t head = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;
    const size_t mine = head + static_cast<size_t>(row) * kHeadDim;

    __shared__ alignas(16) __half k_tile[kTile * kStride], v_tile[kTile * kStride];
    float query[kHeadDim], acc[kHeadDim];
    for (int d = 0; d < kHeadDim; ++d) {
        query[d] = __half2float(q[mine + d]) * scale;
        acc[d] = 0.0f;
    }

    float row_max = -1e30f, row_sum = 0.0f;
    for (int first = 0; first < seq_len; first += kSplit) {
        if (first % kTile == 0) {
            __syncthreads();
            for (int i = threadIdx.x * 8; i < min(kTile, seq_len - first) * kHeadDim; i += kThreads * 8) {
                const int to = i / kHeadDim * kStride + i % kHeadDim;
                const size_t from = head + static_cast<size_t>(first) * kHeadDim + i;
                *reinterpret_cast<uint4*>(k_tile + to) = *reinterpret_cast<const uint4*>(k + from);
                *reinterpret_cast<uint4*>(v_tile + to) = *reinterpret_cast<const uint4*>(v + from);
            }
            __syncthreads();
        }
        if (first + part >= seq_len) break;
        const __half* k_row = k_tile + (first + part) % kTile * kStride;
        const __half* v_row = v_tile + (first + part) % kTile * kStride;

        float score = 0.0f;
        for (int d = 0; d < kHeadDim; d += 8) {
            float x[8];
            load8(k_row + d, x);
            for (int i = 0; i < 8; ++i) score += query[d + i] * x[i];
        }

        const float new_max = fmaxf(row_max, score);
        const float rescale = __expf(row_max - new_max);
        const float p = __expf(score - new_max);
        row_sum = row_sum * rescale + p;
        row_max = new_max;
        for (int d = 0; d < kHeadDim; d += 8) {
            float x[8];
            load8(v_row + d, x);
            for (int i = 0; i < 8; ++i) acc[d + i] = acc[d + i] * rescale + p * x[i];
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
