// As fix16.cu, but warpgroups synchronise only at the end. The first 32 keys of a warpgroup fix a
// row's reference. If a later probability overflows, the row's sum shows that at the end, and the
// block computes its rows again. The exponentials of 16 keys stand between products of other keys.
// Up to 512 keys, head dimension 64.
#include "attention.cuh"
#include "ones.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
constexpr float kMaxSum = 1e30f;
#else
#define MMA_TYPES "f32.f16.f16.f32"
constexpr float kMaxSum = 3e7f;  // below 512 x 65504; a sum is infinite if a probability overflows
#endif
// The reference is above the first scores by this, in log2 units. fp16 then holds weights of 2^-16
// to 2^24 times the largest weight of the first keys.
constexpr float kMargin = 8.0f;
constexpr int kGroups = 2;
constexpr int kRows = 64;
constexpr int kChunk = 64;
constexpr int kMaxChunks = 8;
constexpr int kIterations = kMaxChunks / kGroups;

struct SharedStorage {
    Element q[kGroups][kRows * 64];  // one copy per warpgroup
    Element k[kMaxChunks][kChunk * 64], v[kMaxChunks][kChunk * 64], ones[kChunk * 64];
    float4 partial_out[kGroups][4][128];  // of rows that the other warpgroup finishes
    float2 softmax[kGroups][128];         // references and sums of these rows
    Barrier k_full[kMaxChunks], v_full[kMaxChunks];
};
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

__device__ __forceinline__ void cp_async(unsigned to, const Element* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void cp_async_wait_all() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Loads a 16 x 16 operand. Lane i has the address of row i % 8 of matrix i / 8 of four 8 x 8 ones.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&a)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from) : "memory");
}

// Loads an 8 x 8 matrix. Lane i of the first eight has the address of row i.
__device__ __forceinline__ void ldmatrix_x1(unsigned& to, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(to) : "r"(from) : "memory");
}

__device__ __forceinline__ void ldmatrix_x1_trans(unsigned& to, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(to) : "r"(from) : "memory");
}

// d += a b; a is 16 x 8, b is 8 x 8.
__device__ __forceinline__ void mma(float* d, const unsigned* a, unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col." MMA_TYPES
                 " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

// d = a b^T (+ d), summed over 16 columns; a is in registers, b [keys][64] in shared memory.
__device__ __forceinline__ void wgmma_transposed(float (&d)[32], const unsigned (&a)[4], unsigned b,
                                                 int accumulate) {
    asm volatile("{.reg .pred p; .reg .b64 b; setp.ne.s32 p, %37, 0;\n"
                 "mov.b64 b, {%36, " DESCRIPTOR_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16." OPERANDS
                 "{" NAMES_32 "}, {%32, %33, %34, %35}, b, p, 1, 1, 0;}"
                 : OUT_32 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate));
}

__device__ __forceinline__ void fence_operand(unsigned (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

struct WarpState {
    SharedStorage& s;
    int group, lane, first_row, seq_len;  // first_row: the first of the warp's 16 rows
    float to_log2;
    unsigned q[4][4];
    float acc[36], reference[2];  // acc[32] and acc[34] are row sums

    // Number of visible keys of a chunk in row g or g + 8, counted from this thread's first column.
    __device__ __forceinline__ int visible_keys(int chunk, int half) const {
        const int row = first_row + lane / 4 + 8 * half;
        return (CAUSAL ? min(seq_len, row + 1) : seq_len) - (chunk * kChunk + lane % 4 * 2);
    }

    template <bool kMasked>
    __device__ __forceinline__ void find_reference(const float (&score)[32]) {
        float row_max[4] = {-1e30f, -1e30f, -1e30f, -1e30f};
        const int limit[2] = {visible_keys(group, 0), visible_keys(group, 1)};
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if (!kMasked || i / 4 * 8 + i % 2 < limit[i / 2 % 2])
                row_max[i % 4] = fmaxf(row_max[i % 4], score[i]);
        reference[0] = fmaf(quad_max(fmaxf(row_max[0], row_max[1])), to_log2, kMargin);
        reference[1] = fmaf(quad_max(fmaxf(row_max[2], row_max[3])), to_log2, kMargin);
    }

    __device__ __forceinline__ void multiply_queries(float (&score)[32], int chunk, int from,
                                                     int to) {
#pragma unroll
        for (int i = from; i < to; ++i)
            wgmma_transposed(score, q[i], descriptor(s.k[chunk]) + i * 2, i > 0);
    }

    __device__ __forceinline__ void multiply_values(const unsigned (&p)[4], int chunk, int i,
                                                    bool accumulate) {
        wgmma(acc, p, descriptor(s.v[chunk], (kMaxChunks - chunk) * kChunk * 128) + i * 128,
              accumulate);
    }

    // Scores are double-buffered: the next chunk's scores are computed during this chunk's
    // exponentials. The mask clears probabilities and not scores, because a branch must not write
    // accumulators while products are in flight.
    __device__ __forceinline__ void run(int chunks) {
        float score[2][32];
        unsigned p[2][4][4];
        fence_operand(score[0]);
        fence_operand(q);
        wgmma_fence();
        multiply_queries(score[0], group, 0, 4);
        wgmma_commit();
#pragma unroll
        for (int iteration = 0; iteration < kIterations; ++iteration) {
            const int buffer = iteration % 2, chunk = kGroups * iteration + group;
            const bool has_next = iteration + 1 < kIterations, last = iteration + 1 == chunks;
            if (iteration == 0)
                wgmma_wait<0>();
            else
                wgmma_wait<2>();  // the last two output products may still be in flight
            fence_operand(score[buffer]);
            if (iteration == 0) {
                if (MASKED && last)
                    find_reference<true>(score[0]);
                else
                    find_reference<false>(score[0]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int e = 8 * i; e < 8 * i + 8; ++e)
                    score[buffer][e] =
                        exp2_fast(fmaf(score[buffer][e], to_log2, -reference[e / 2 % 2]));
#pragma unroll
                for (int e = 8 * i; e < 8 * i + 8; e += 2)
                    p[buffer][i][e / 2 % 4] = pack(score[buffer][e], score[buffer][e + 1]);
                if (MASKED && last) {
#pragma unroll
                    for (int e = 8 * i; e < 8 * i + 8; e += 2) {
                        const int limit = visible_keys(chunk, e / 2 % 2) - e / 4 * 8;
                        p[buffer][i][e / 2 % 4] &= limit > 1 ? ~0u : limit > 0 ? 0xffffu : 0u;
                    }
                }
                if (i == 0) {
                    barrier_wait(&s.v_full[chunk], 0);
                    if (has_next && !last) barrier_wait(&s.k_full[chunk + kGroups], 0);
                    if (has_next) fence_operand(score[1 - buffer]);
                }
                fence_operand(acc);
                fence_operand(p[buffer][i]);
                wgmma_fence();
                multiply_values(p[buffer][i], chunk, i, iteration > 0 || i > 0);
                if (has_next && i < 2)  // after the last chunk, these scores are not used
                    multiply_queries(score[1 - buffer], chunk + kGroups, 2 * i, 2 * i + 2);
                wgmma_commit();
            }
            if (last) break;
        }
        wgmma_wait<0>();
        fence_operand(acc);
    }

    // Computes the rows again with mma.sync and an online softmax, each warp alone. The fragments
    // of mma.sync and wgmma have the same layout.
    __device__ __forceinline__ void recompute(int chunks) {
        reference[0] = reference[1] = -1e30f;
#pragma unroll
        for (int i = 0; i < 36; ++i) acc[i] = 0.0f;
#pragma unroll 1
        for (int chunk = group; chunk < kGroups * chunks; chunk += kGroups) {
            float score[32] = {}, rescale[2];
            unsigned p[4][4], b;
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int key = 0; key < kChunk; key += 8) {
                    ldmatrix_x1(b, shared_address(s.k[chunk]) + key * 128 + swizzled(lane % 8, i));
                    mma(score + key / 2, q[i / 2] + i % 2 * 2, b);
                }
            if (MASKED) mask_keys(score, chunk * kChunk, first_row + lane / 4, seq_len);
            float row_max[2] = {reference[0], reference[1]};
#pragma unroll
            for (int i = 0; i < 32; ++i)
                row_max[i / 2 % 2] = fmaxf(row_max[i / 2 % 2], score[i] * to_log2);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                row_max[half] = quad_max(row_max[half]);
                rescale[half] = exp2_fast(reference[half] - row_max[half]);
                reference[half] = row_max[half];
            }
            scale_rows(acc, rescale);
#pragma unroll
            for (int i = 0; i < 32; ++i)
                score[i] = exp2_fast(fmaf(score[i], to_log2, -reference[i / 2 % 2]));
            pack_operand(p, score);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int column = 0; column < 8; ++column) {
                    ldmatrix_x1_trans(
                        b, shared_address(s.v[chunk]) + i * 1024 + swizzled(lane % 8, column));
                    mma(acc + 4 * column, p[i / 2] + i % 2 * 2, b);
                }
                mma(acc + 32, p[i / 2] + i % 2 * 2, kOnes);
            }
        }
    }

    // Passes rows g + 8 of warpgroup 0 and rows g of warpgroup 1 to the other warpgroup.
    __device__ __forceinline__ void send_rows() {
        const int thread = threadIdx.x % 128;
#pragma unroll
        for (int i = 0; i < 32; i += 8)
            s.partial_out[group][i / 8][thread] = group
                ? make_float4(acc[i], acc[i + 1], acc[i + 4], acc[i + 5])
                : make_float4(acc[i + 2], acc[i + 3], acc[i + 6], acc[i + 7]);
        s.softmax[group][thread] =
            group ? make_float2(reference[0], acc[32]) : make_float2(reference[1], acc[34]);
    }
};

extern "C" __global__ void __launch_bounds__(128 * kGroups, 1)
attention_forward(const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
                  const Element* __restrict__ q, const Element* __restrict__ k,
                  Element* __restrict__ out, int seq_len, float to_log2) {
    extern __shared__ char raw[];
    SharedStorage& s =
        *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32, thread = threadIdx.x % 128, head = blockIdx.y;
    const int block_row = blockIdx.x * kRows, warp_row = warp % 4 * 16;
    const int keys = CAUSAL ? min(seq_len, block_row + kRows) : seq_len;
    const int total_chunks = (keys + kChunk - 1) / kChunk;
    const int chunks = (total_chunks - group + 1) / kGroups;
    const size_t head_offset = static_cast<size_t>(head) * seq_len * 64;
    WarpState state{s, group, lane, block_row + warp_row, seq_len, to_log2};

    // Load the warpgroup's first keys and the warp's queries by cp.async: TMA would have to fetch
    // its tensor maps first. Rows out of bounds are copies of the last row.
    if (chunks > 0) {
        const unsigned to = shared_address(s.k[group]) + swizzled(thread / 8, thread % 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = group * kChunk + thread / 8 + 16 * i;
            const int key = MASKED ? min(row, seq_len - 1) : row;
            cp_async(to + i * 16 * 128, k + head_offset + key * 64 + thread % 8 * 8);
        }
    }
    {
        const unsigned to = shared_address(s.q[group]) + swizzled(warp_row + lane / 8, lane % 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = block_row + warp_row + lane / 8 + 4 * i;
            cp_async((to ^ i % 2 * 64) + i * 4 * 128,  // every 4 rows, the swizzle flips bit 2
                     q + head_offset + (MASKED ? min(row, seq_len - 1) : row) * 64 + lane % 8 * 8);
        }
    }
    // Each warp initialises the mbarriers of one chunk and loads it, without waiting for others.
    const int warp_chunk = kGroups * (warp % 4) + group;
    if (lane == 0 && warp_chunk < total_chunks) {
        barrier_init(&s.v_full[warp_chunk], 1);
        if (warp_chunk != group) barrier_init(&s.k_full[warp_chunk], 1);
        barrier_init_fence();
        if (warp_chunk != group) {
            barrier_expect(&s.k_full[warp_chunk], kChunk * 128);
            tma_load(s.k[warp_chunk], k_map, 0, warp_chunk * kChunk, head, &s.k_full[warp_chunk]);
        }
        barrier_expect(&s.v_full[warp_chunk], kChunk * 128);
        tma_load(s.v[warp_chunk], v_map, 0, warp_chunk * kChunk, head, &s.v_full[warp_chunk]);
    }
    __syncwarp();
    // Only the first eight columns of the ones are read. Both warpgroups write the same values.
    if (thread < kChunk)
        *reinterpret_cast<uint4*>(reinterpret_cast<char*>(s.ones) + swizzled(thread, 0)) =
            make_uint4(kOnes, kOnes, kOnes, kOnes);
    cp_async_wait_all();
    async_proxy_fence();
    named_barrier_sync(1 + group, 128);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        ldmatrix_x4(state.q[i], shared_address(s.q[group])
                                    + swizzled(warp_row + lane % 16, 2 * i + lane / 16));

    float (&acc)[36] = state.acc;
    float (&reference)[2] = state.reference;
    reference[0] = reference[1] = -1e30f;
    if (chunks > 0) {
        state.run(chunks);
    } else {
#pragma unroll
        for (int i = 0; i < 36; ++i) acc[i] = 0.0f;
    }
    state.send_rows();
    if (__syncthreads_or(!(fmaxf(acc[32], acc[34]) < kMaxSum))) {
        state.recompute(chunks);
        state.send_rows();
        __syncthreads();
    }

    const float this_reference = group ? reference[1] : reference[0];
    const float this_sum = group ? acc[34] : acc[32];
    const float2 other = s.softmax[1 - group][thread];
    const float row_max = fmaxf(this_reference, other.x);
    float weight = exp2_fast(this_reference - row_max), other_weight = exp2_fast(other.x - row_max);
    const float inverse = reciprocal(fmaf(weight, this_sum, other_weight * other.y));
    weight *= inverse;
    other_weight *= inverse;
    unsigned pairs[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float4 vector = s.partial_out[1 - group][i][thread];
        const float partial[4] = {vector.x, vector.y, vector.z, vector.w};
        float merged[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int j = 8 * i + e / 2 * 4 + e % 2;
            merged[e] = fmaf(group ? acc[j + 2] : acc[j], weight, partial[e] * other_weight);
        }
        pairs[2 * i] = pack(merged[0], merged[1]);
        pairs[2 * i + 1] = pack(merged[2], merged[3]);
    }
    // Stage the output in s.q[0], which no warp reads any more, to store whole rows.
    const int out_row = warp_row + 8 * group, first_row = block_row + out_row;
#pragma unroll
    for (int n = 0; n < 8; n += 4)
        stmatrix(shared_address(s.q[0]) + swizzled(out_row + lane % 8, n + lane / 8),
                 pairs[n], pairs[n + 1], pairs[n + 2], pairs[n + 3]);
    __syncwarp();
    uint4* to = reinterpret_cast<uint4*>(out + head_offset + static_cast<size_t>(first_row) * 64);
#pragma unroll
    for (int i = lane; i < 64; i += 32)
        if (!MASKED || first_row + i / 8 < seq_len)
            to[i] = *reinterpret_cast<const uint4*>(
                reinterpret_cast<const char*>(s.q[0]) + swizzled(out_row + i / 8, i % 8));
}
