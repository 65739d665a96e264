// As fix4, but tiles are copied asynchronously (cp.async) into a ring of four, three ahead of the
// one being worked on.
//
// Fragment layout (m16n8k16, fp16 in, fp32 out), with g = lane / 4 and t = lane % 4:
//   A: rows g and g + 8, columns 2t, 2t + 1 and 8 further;  C: rows g and g + 8, columns 2t, 2t + 1
//   B: rows 2t, 2t + 1 and 8 further, column g
#include <cuda_fp16.h>

constexpr int kHeadDim = 64;
constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;     // query rows of a block
constexpr int kTile = 64;              // keys in shared memory at a time
constexpr int kStride = kHeadDim + 8;  // padded: the eight rows of a fragment lie in other banks
constexpr int kStages = 4;
constexpr int kTileHalves = kTile * kStride;
static_assert(2 * kStages * kTileHalves * sizeof(__half) == SHARED_BYTES,
              "a launch gives another size than the ring has");
constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8x8 matrices, transposed: lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], const __half* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ unsigned word(const __half* from) {
    return *reinterpret_cast<const unsigned*>(from);
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}

// 16 bytes from global to shared memory, or zeros where ``inside`` is false.
__device__ __forceinline__ void copy_async(__half* to, const __half* from, bool inside) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(address), "l"(from), "r"(inside ? 16 : 0));
}

// The four lanes of a row hold its columns between them.
__device__ __forceinline__ float row_max_of(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float row_sum_of(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const __half* __restrict__ q, const __half* __restrict__ k,
                  const __half* __restrict__ v, __half* __restrict__ out,
                  int seq_len, float scale) {
    extern __shared__ __align__(16) __half ring[];
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = blockIdx.x * kRows + threadIdx.x / 32 * 16 + g;  // and row + 8
    const size_t head = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;

    unsigned query[4][4];
    const __half* upper = q + head + static_cast<size_t>(min(row, seq_len - 1)) * kHeadDim + 2 * t;
    const __half* lower = q + head + static_cast<size_t>(min(row + 8, seq_len - 1)) * kHeadDim + 2 * t;
    for (int step = 0; step < 4; ++step) {
        query[step][0] = word(upper + 16 * step);
        query[step][1] = word(lower + 16 * step);
        query[step][2] = word(upper + 16 * step + 8);
        query[step][3] = word(lower + 16 * step + 8);
    }

    const auto fetch = [&](int first) {
        if (first < seq_len) {
            __half* tile = ring + first / kTile % kStages * 2 * kTileHalves;
            for (int i = threadIdx.x * 8; i < kTile * kHeadDim; i += kThreads * 8) {
                const int key = i / kHeadDim, to = key * kStride + i % kHeadDim;
                const bool inside = first + key < seq_len;
                const size_t from = head + static_cast<size_t>(inside ? first : 0) * kHeadDim + i;
                copy_async(tile + to, k + from, inside);
                copy_async(tile + kTileHalves + to, v + from, inside);
            }
        }
        asm volatile("cp.async.commit_group;");
    };
    for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage * kTile);

    const float to_log2 = scale * kLog2e;
    float acc[8][4] = {}, row_max[2] = {-1e30f, -1e30f}, row_sum[2] = {};
    for (int first = 0; first < seq_len; first += kTile) {
        asm volatile("cp.async.wait_group %0;" :: "n"(kStages - 2));
        __syncthreads();
        fetch(first + (kStages - 1) * kTile);
        const __half* k_tile = ring + first / kTile % kStages * 2 * kTileHalves;
        const __half* v_tile = k_tile + kTileHalves;

        float score[8][4] = {};
        for (int n = 0; n < 8; ++n) {
            const __half* key = k_tile + (8 * n + g) * kStride + 2 * t;
            for (int step = 0; step < 4; ++step)
                mma(score[n], query[step], word(key + 16 * step), word(key + 16 * step + 8));
        }
        if (first + kTile > seq_len)
            for (int n = 0; n < 8; ++n)
                for (int i = 0; i < 4; ++i)
                    if (first + 8 * n + 2 * t + i % 2 >= seq_len) score[n][i] = -1e30f;

        for (int half = 0; half < 2; ++half) {
            float largest = row_max[half];
            for (int n = 0; n < 8; ++n)
                largest = fmaxf(largest, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
            largest = row_max_of(largest);
            const float rescale = exp2f((row_max[half] - largest) * to_log2);
            row_max[half] = largest;
            row_sum[half] *= rescale;
            for (int n = 0; n < 8; ++n) {
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    score[n][i] = exp2f((score[n][i] - largest) * to_log2);
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
                unsigned value[4];
                load_transposed(value, v_tile + (16 * step + lane % 16) * kStride + 8 * (n + lane / 16));
                mma(acc[n], p, value[0], value[1]);
                mma(acc[n + 1], p, value[2], value[3]);
            }
        }
    }

    for (int half = 0; half < 2; ++half) {
        const float inverse = 1.0f / row_sum_of(row_sum[half]);
        if (row + 8 * half >= seq_len) continue;
        __half* to = out + head + static_cast<size_t>(row + 8 * half) * kHeadDim + 2 * t;
        for (int n = 0; n < 8; ++n)
            *reinterpret_cast<unsigned*>(to + 8 * n) =
                pack(acc[n][2 * half] * inverse, acc[n][2 * half + 1] * inverse);
    }
}
