// As fix2.cu, but both products run on the tensor cores (mma.sync). A warp owns 16 query rows.
// Q, the scores and the output stay in registers as fragments: the accumulators of the first
// product, packed to fp16, are operand A of the second.
//
// Fragment layout of m16n8k16 (fp16 operands, fp32 accumulators), with g = lane / 4, t = lane % 4:
//   A: rows g and g + 8, columns 2t, 2t + 1, 2t + 8, 2t + 9
//   B: rows 2t, 2t + 1, 2t + 8, 2t + 9, column g
//   C: rows g and g + 8, columns 2t, 2t + 1
#include <cuda_fp16.h>

constexpr int kHeadDim = 64;
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;     // query rows per block
constexpr int kTile = 64;              // keys per tile
constexpr int kStride = kHeadDim + 8;  // padded: no bank conflicts between a fragment's eight rows
constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four transposed 8 x 8 matrices. Lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_trans(unsigned (&fragment)[4], const __half* row) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address));
}

__device__ __forceinline__ unsigned load_half2(const __half* address) {
    return *reinterpret_cast<const unsigned*>(address);
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
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

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const __half* __restrict__ q, const __half* __restrict__ k,
                  const __half* __restrict__ v, __half* __restrict__ out,
                  int seq_len, float scale) {
    __shared__ alignas(16) __half k_tile[kTile * kStride], v_tile[kTile * kStride];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = blockIdx.x * kRows + threadIdx.x / 32 * 16 + g;  // and row + 8
    const size_t head_offset = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;

    unsigned query[4][4];
    const __half* upper =
        q + head_offset + static_cast<size_t>(min(row, seq_len - 1)) * kHeadDim + 2 * t;
    const __half* lower =
        q + head_offset + static_cast<size_t>(min(row + 8, seq_len - 1)) * kHeadDim + 2 * t;
    for (int step = 0; step < 4; ++step) {
        query[step][0] = load_half2(upper + 16 * step);
        query[step][1] = load_half2(lower + 16 * step);
        query[step][2] = load_half2(upper + 16 * step + 8);
        query[step][3] = load_half2(lower + 16 * step + 8);
    }

    const float to_log2 = scale * kLog2e;
    float acc[8][4] = {}, row_max[2] = {-1e30f, -1e30f}, row_sum[2] = {};
    for (int first_key = 0; first_key < seq_len; first_key += kTile) {
        __syncthreads();
        for (int i = threadIdx.x * 8; i < kTile * kHeadDim; i += kThreads * 8) {
            const int key = i / kHeadDim, dst = key * kStride + i % kHeadDim;
            const size_t src = head_offset + static_cast<size_t>(first_key) * kHeadDim + i;
            const bool in_bounds = first_key + key < seq_len;
            const uint4 zero = make_uint4(0, 0, 0, 0);
            *reinterpret_cast<uint4*>(k_tile + dst) =
                in_bounds ? *reinterpret_cast<const uint4*>(k + src) : zero;
            *reinterpret_cast<uint4*>(v_tile + dst) =
                in_bounds ? *reinterpret_cast<const uint4*>(v + src) : zero;
        }
        __syncthreads();

        float score[8][4] = {};
        for (int n = 0; n < 8; ++n) {
            const __half* k_row = k_tile + (8 * n + g) * kStride + 2 * t;
            for (int step = 0; step < 4; ++step)
                mma(score[n], query[step], load_half2(k_row + 16 * step),
                    load_half2(k_row + 16 * step + 8));
        }
        if (first_key + kTile > seq_len)
            for (int n = 0; n < 8; ++n)
                for (int i = 0; i < 4; ++i)
                    if (first_key + 8 * n + 2 * t + i % 2 >= seq_len) score[n][i] = -1e30f;

        for (int half = 0; half < 2; ++half) {
            float new_max = row_max[half];
            for (int n = 0; n < 8; ++n)
                new_max = fmaxf(new_max, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
            new_max = quad_max(new_max);
            const float rescale = exp2f((row_max[half] - new_max) * to_log2);
            row_max[half] = new_max;
            row_sum[half] *= rescale;
            for (int n = 0; n < 8; ++n) {
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    score[n][i] = exp2f((score[n][i] - new_max) * to_log2);
                    row_sum[half] += score[n][i];
                    acc[n][i] *= rescale;
                }
            }
        }

        for (int step = 0; step < 4; ++step) {
            const unsigned p[4] = {pack(score[2 * step][0], score[2 * step][1]),
                                   pack(score[2 * step][2], score[2 * step][3]),
                                   pack(score[2 * step + 1][0], score[2 * step + 1][1]),
                                   pack(score[2 * step + 1][2], score[2 * step + 1][3])};
            for (int n = 0; n < 8; n += 2) {
                unsigned v_fragment[4];
                ldmatrix_trans(v_fragment,
                               v_tile + (16 * step + lane % 16) * kStride + 8 * (n + lane / 16));
                mma(acc[n], p, v_fragment[0], v_fragment[1]);
                mma(acc[n + 1], p, v_fragment[2], v_fragment[3]);
            }
        }
    }

    for (int half = 0; half < 2; ++half) {
        const float inverse = 1.0f / quad_sum(row_sum[half]);
        if (row + 8 * half >= seq_len) continue;
        __half* out_row =
            out + head_offset + static_cast<size_t>(row + 8 * half) * kHeadDim + 2 * t;
        for (int n = 0; n < 8; ++n)
            *reinterpret_cast<unsigned*>(out_row + 8 * n) =
                pack(acc[n][2 * half] * inverse, acc[n][2 * half + 1] * inverse);
    }
}
