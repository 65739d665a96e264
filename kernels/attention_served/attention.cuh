// What the wgmma kernels share: the softmax of a warpgroup's rows, and the way out.
//
// A warpgroup has 64 rows; a thread holds of each product d[4n], d[4n + 1] at row g, columns
// 8n + 2t, 8n + 2t + 1, and d[4n + 2], d[4n + 3] at row g + 8, where g = lane / 4 and t = lane % 4
// and warp w of the four has the rows from 16w on.
#pragma once
#include "hopper.cuh"

using Element = unsigned short;  // the bits of an fp16 or bf16
constexpr int kHeadDim = HEAD_DIM;
constexpr int kPanels = kHeadDim / 64;  // tiles lie in shared memory in panels of 64 columns
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

// The four lanes of a row hold its columns between them.
__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Columns from ``upper`` on of row g, and from ``lower`` on of row g + 8, count for nothing. Both
// are counted from this thread's first column.
template <int kCount>
__device__ __forceinline__ void mask(float (&score)[kCount], int upper, int lower) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
        if (i / 4 * 8 + i % 2 >= (i / 2 % 2 ? lower : upper)) score[i] = __int_as_float(0xff800000);  // -infinity
}

// The same for keys from ``first_key`` on, where a row sees those before seq_len and, under a
// causal mask, none after itself. ``row`` is row g; the warp's first row decides whether to look.
template <int kCount>
__device__ __forceinline__ void mask_keys(float (&score)[kCount], int first_key, int row,
                                          int seq_len) {
    const int lane = threadIdx.x % 32, beyond = first_key + 2 * kCount;
    if (beyond > seq_len || CAUSAL && beyond > row - lane / 4 + 1) {
        const int first = first_key + lane % 4 * 2;
        mask(score, (CAUSAL ? min(seq_len, row + 1) : seq_len) - first,
             (CAUSAL ? min(seq_len, row + 9) : seq_len) - first);
    }
}

// Online softmax of rows g and g + 8. Probabilities are taken against a reference that is not far
// below the largest score: it moves, and what was summed is rescaled, only when a score exceeds it
// by more than a factor of 2^8. fp16 and fp32 have room for that, and most tiles save the rescaling.
struct Softmax {
    float reference[2] = {-1e30f, -1e30f};  // raw scores
    float sum[2] = {0.0f, 0.0f};            // of this thread's columns
    float rescale[2];
    float to_log2;

    Softmax() = default;
    __device__ __forceinline__ explicit Softmax(float scale) : to_log2(scale * kLog2e) {}

    // Moves the reference where it must; says whether the output has to be multiplied by rescale.
    template <int kCount>
    __device__ __forceinline__ bool move_reference(const float (&score)[kCount]) {
        float largest[2] = {reference[0], reference[1]};
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], score[i]);
        largest[0] = quad_max(largest[0]);
        largest[1] = quad_max(largest[1]);
        const float above = fmaxf(largest[0] - reference[0], largest[1] - reference[1]);
        if (!__any_sync(~0u, above * to_log2 > 8.0f)) return false;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            rescale[half] = exp2_fast((reference[half] - largest[half]) * to_log2);
            reference[half] = largest[half];
            sum[half] *= rescale[half];
        }
        return true;
    }

    __device__ __forceinline__ float exponent(float score, int i) const {
        return fmaf(score, to_log2, -reference[i / 2 % 2] * to_log2);
    }

    // Scores to probabilities, in place.
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
__device__ __forceinline__ void multiply(float (&d)[kCount], const float (&by)[2]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) d[i] *= by[i / 2 % 2];
}

// The accumulators of a product are, packed, the operand of the next.
template <int kCount>
__device__ __forceinline__ void pack_operand(unsigned (&a)[kCount / 8][4],
                                             const float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) a[i / 8][i / 2 % 4] = pack(d[i], d[i + 1]);
}

// 16 rows of a warp's output, times ``by``, into panels of ``panel_rows`` rows from ``row`` on.
__device__ __forceinline__ void stage_output(Element* panels, int panel_rows, int row,
                                             const float (&d)[kHeadDim / 2], const float (&by)[2]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n += 2) {
        const unsigned panel = shared_address(panels) + n / 8 * panel_rows * 128;
        store_matrices(panel + swizzled(row + lane % 16, n % 8 + lane / 16),
                       pack(d[4 * n] * by[0], d[4 * n + 1] * by[0]),
                       pack(d[4 * n + 2] * by[1], d[4 * n + 3] * by[1]),
                       pack(d[4 * n + 4] * by[0], d[4 * n + 5] * by[0]),
                       pack(d[4 * n + 6] * by[1], d[4 * n + 7] * by[1]));
    }
}

// 16 rows of the warp's output from its own rows of a tile that nobody reads any more, whole rows
// at a time. ``to`` is row ``row``; of the 16 only the first ``rows_left`` are written.
__device__ __forceinline__ void store_output(Element* to, int rows_left, Element* panels,
                                             int panel_rows, int row,
                                             const float (&d)[kHeadDim / 2],
                                             const float (&by)[2]) {
    stage_output(panels, panel_rows, row, d, by);
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8;
#pragma unroll
    for (int i = threadIdx.x % 32; i < 16 * kChunks; i += 32) {
        const int chunk = i % kChunks;
        const char* from = reinterpret_cast<const char*>(panels) + chunk / 8 * panel_rows * 128
            + swizzled(row + i / kChunks, chunk % 8);
        if (i / kChunks < rows_left)
            reinterpret_cast<uint4*>(to)[i] = *reinterpret_cast<const uint4*>(from);
    }
}
