// Shared by the wgmma kernels: the softmax of a warpgroup's 64 rows, and the output.
//
// Accumulator layout, with g = lane / 4 and t = lane % 4: d[4n] and d[4n + 1] are at row g, columns
// 8n + 2t and 8n + 2t + 1; d[4n + 2] and d[4n + 3] are at row g + 8, same columns. Rows are counted
// from the warp's first row: warp w of the warpgroup has rows 16w to 16w + 15.
#pragma once
#include "hopper.cuh"

using Element = unsigned short;  // fp16 or bf16 bits
constexpr int kHeadDim = HEAD_DIM;
constexpr int kPanels = kHeadDim / 64;  // a tile in shared memory is split into 64-column panels
constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned pair;
#ifdef BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
    return pair;
}

// The columns of a row are spread over four lanes.
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Masks columns from ``upper_limit`` on in row g and from ``lower_limit`` on in row g + 8. Both
// limits are relative to this thread's first column.
template <int kCount>
__device__ __forceinline__ void mask(float (&score)[kCount], int upper_limit, int lower_limit) {
    const float minus_infinity = __int_as_float(0xff800000);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
        if (i / 4 * 8 + i % 2 >= (i / 2 % 2 ? lower_limit : upper_limit)) score[i] = minus_infinity;
}

// Masks the keys of a tile beyond seq_len and, if CAUSAL, those after each query row. ``row`` is
// row g. The branch is uniform in a warp: it depends on the warp's first row only.
template <int kCount>
__device__ __forceinline__ void mask_keys(float (&score)[kCount], int first_key, int row,
                                          int seq_len) {
    const int lane = threadIdx.x % 32, tile_end = first_key + 2 * kCount;
    if (tile_end > seq_len || CAUSAL && tile_end > row - lane / 4 + 1) {
        const int thread_key = first_key + lane % 4 * 2;
        mask(score, (CAUSAL ? min(seq_len, row + 1) : seq_len) - thread_key,
             (CAUSAL ? min(seq_len, row + 9) : seq_len) - thread_key);
    }
}

// Online softmax of rows g and g + 8. Probabilities are relative to a reference score instead of
// the exact maximum. The reference is raised, and the sums rescaled, only if a probability would
// exceed 2^8. fp16 and fp32 have that range, and most tiles skip the rescaling.
struct Softmax {
    float reference[2] = {-1e30f, -1e30f};  // unscaled scores
    float sum[2] = {0.0f, 0.0f};            // over this thread's columns
    float rescale[2];
    float to_log2;  // softmax scale times log2(e)

    Softmax() = default;
    __device__ __forceinline__ explicit Softmax(float scale) : to_log2(scale * kLog2e) {}

    // Raises the references if needed. Returns whether the output has to be scaled by ``rescale``.
    template <int kCount>
    __device__ __forceinline__ bool update_reference(const float (&score)[kCount]) {
        float row_max[2] = {reference[0], reference[1]};
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            row_max[i / 2 % 2] = fmaxf(row_max[i / 2 % 2], score[i]);
        row_max[0] = quad_max(row_max[0]);
        row_max[1] = quad_max(row_max[1]);
        const float excess = fmaxf(row_max[0] - reference[0], row_max[1] - reference[1]);
        if (!__any_sync(~0u, excess * to_log2 > 8.0f)) return false;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            rescale[half] = exp2_fast((reference[half] - row_max[half]) * to_log2);
            reference[half] = row_max[half];
            sum[half] *= rescale[half];
        }
        return true;
    }

    __device__ __forceinline__ float exponent(float score, int i) const {
        return fmaf(score, to_log2, -reference[i / 2 % 2] * to_log2);
    }

    // Replaces scores by probabilities.
    template <int kCount>
    __device__ __forceinline__ void exponentiate(float (&score)[kCount]) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            score[i] = exp2_fast(exponent(score[i], i));
            sum[i / 2 % 2] += score[i];
        }
    }
};

template <int kCount>
__device__ __forceinline__ void scale_rows(float (&d)[kCount], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] *= factor[i / 2 % 2];
}

// The accumulator layout, packed to 16 bits, is the layout of wgmma's register operand A.
template <int kCount>
__device__ __forceinline__ void pack_operand(unsigned (&a)[kCount / 8][4],
                                             const float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) a[i / 8][i / 2 % 4] = pack(d[i], d[i + 1]);
}

// Writes a warp's 16 rows of output, times ``factor``, to swizzled shared memory panels of
// ``panel_rows`` rows, starting at ``row``.
__device__ __forceinline__ void stage_output(Element* panels, int panel_rows, int row,
                                             const float (&d)[kHeadDim / 2],
                                             const float (&factor)[2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n += 2) {
        const unsigned panel = shared_address(panels) + n / 8 * panel_rows * 128;
        stmatrix(panel + swizzled(row + lane % 16, n % 8 + lane / 16),
                 pack(d[4 * n] * factor[0], d[4 * n + 1] * factor[0]),
                 pack(d[4 * n + 2] * factor[1], d[4 * n + 3] * factor[1]),
                 pack(d[4 * n + 4] * factor[0], d[4 * n + 5] * factor[0]),
                 pack(d[4 * n + 6] * factor[1], d[4 * n + 7] * factor[1]));
    }
}

// Stores a warp's 16 rows of output with coalesced 16-byte writes. It stages them in the warp's
// own rows of ``panels``, which no other warp reads any more. ``out`` points to the first row. Only
// the first ``rows_left`` rows are written.
__device__ __forceinline__ void store_output(Element* out, int rows_left, Element* panels,
                                             int panel_rows, int row,
                                             const float (&d)[kHeadDim / 2],
                                             const float (&factor)[2]) {
    stage_output(panels, panel_rows, row, d, factor);
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8;
#pragma unroll
    for (int i = threadIdx.x % 32; i < 16 * kChunks; i += 32) {
        const int chunk = i % kChunks;
        const char* from = reinterpret_cast<const char*>(panels) + chunk / 8 * panel_rows * 128
            + swizzled(row + i / kChunks, chunk % 8);
        if (i / kChunks < rows_left)
            reinterpret_cast<uint4*>(out)[i] = *reinterpret_cast<const uint4*>(from);
    }
}
