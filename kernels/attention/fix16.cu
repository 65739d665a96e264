// As fix11.cu, but with two warpgroups that take alternate chunks of 64 keys, row sums on the
// tensor cores, and a merge in fp32. If CHUNKS is not 0, the next chunk's scores are computed
// during the exponentials. Up to 512 keys, head dimension 64.
#include "attention.cuh"
#include "ones.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
constexpr unsigned kTooLarge = 0x7180u;  // bits of 2^100
#else
#define MMA_TYPES "f32.f16.f16.f32"
constexpr unsigned kTooLarge = 0x7800u;  // bits of 2^15
#endif
constexpr int kGroups = 2;
constexpr int kRows = 64;
constexpr int kChunk = 64;
constexpr int kMaxChunks = 8;
constexpr int kGroupChunks = CHUNKS;  // per warpgroup; 0 if known only at run time

struct SharedStorage {
    Element q[kRows * 64];
    Element k[kMaxChunks][kChunk * 64], v[kMaxChunks][kChunk * 64], ones[kChunk * 64];
    float4 exchange[kGroups][5][128];  // four of partial output, one of references and sums
    Barrier q_full, k_full[kMaxChunks], v_full[kMaxChunks];
};
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

// Loads two 8 x 8 matrices. Lane i has the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x2(unsigned (&to)[2], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(from) : "memory");
}

__device__ __forceinline__ void ldmatrix_x1(unsigned& to, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(to) : "r"(from) : "memory");
}

// d += a b; a is 16 x 8, b is 8 x 8.
__device__ __forceinline__ void mma(float* d, const unsigned (&a)[2], unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col." MMA_TYPES
                 " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

// The bits of nonnegative fp16 or bf16 numbers compare as integers.
__device__ __forceinline__ unsigned max_pair(unsigned a, unsigned b) {
    asm("max.s16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
}

// Copies 16-byte vector ``vector`` of a tile of [rows][64] to swizzled shared memory. Rows out of
// bounds are filled with zeros.
__device__ __forceinline__ void copy_vector(Element* tile, int vector, const Element* from,
                                            int first_row, int rows) {
    const bool in_bounds = !MASKED || first_row + vector / 8 < rows;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(shared_address(tile) + swizzled(vector / 8, vector % 8)),
                   "l"(from + (in_bounds ? first_row * 64 + vector * 8 : 0)),
                   "r"(in_bounds ? 16 : 0) : "memory");
}

extern "C" __global__ void __launch_bounds__(128 * kGroups, 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, const Element* __restrict__ q,
                  const Element* __restrict__ k, Element* __restrict__ out, int seq_len,
                  float to_log2) {
    extern __shared__ char raw[];
    SharedStorage& s =
        *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32, thread = threadIdx.x % 128, head = blockIdx.y;
    const int first_row = blockIdx.x * kRows, warp_row = warp % 4 * 16;
    const int keys = CAUSAL ? min(seq_len, first_row + kRows) : seq_len;
    const int chunks = kGroupChunks ? kGroups * kGroupChunks : (keys + kChunk - 1) / kChunk;

#if FIRST
    // Load queries and first keys by cp.async: TMA would have to fetch its tensor maps first.
    {
        const size_t head_offset = static_cast<size_t>(head) * seq_len * 64;
#pragma unroll
        for (int i = 0; i < 2; ++i)
            copy_vector(s.q, threadIdx.x + i * 256, q + head_offset, first_row, seq_len);
        if (group < chunks)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                copy_vector(s.k[group], thread + i * 128, k + head_offset, group * kChunk, seq_len);
    }
#endif
    // Warp w initialises the mbarriers of chunk w and loads it, without waiting for other warps.
    if (lane == 0) {
        const bool load_q = !FIRST && warp == 0, load_v = warp < chunks;
        const bool load_k = load_v && (!FIRST || warp >= kGroups);
        if (load_q) barrier_init(&s.q_full, 1);
        if (load_v) {
            barrier_init(&s.k_full[warp], 1);
            barrier_init(&s.v_full[warp], 1);
        }
        barrier_init_fence();
        auto load = [&](Element* to, const TensorMap& map, int row, Barrier* full) {
            barrier_expect(full, kChunk * 128);
            tma_load(to, map, 0, row, head, full);
        };
        if (load_q) load(s.q, q_map, first_row, &s.q_full);
        if (load_k) load(s.k[warp], k_map, warp * kChunk, &s.k_full[warp]);
        if (load_v) load(s.v[warp], v_map, warp * kChunk, &s.v_full[warp]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i)
        reinterpret_cast<uint4*>(s.ones)[threadIdx.x + i * 256] =
            make_uint4(kOnes, kOnes, kOnes, kOnes);
    if (FIRST) asm volatile("cp.async.wait_all;" ::: "memory");
    async_proxy_fence();
    __syncthreads();

    float acc[36], reference[2] = {-1e30f, -1e30f};  // acc[32] and acc[34]: sums
    auto start_scores = [&](float (&score)[32], int chunk) {
        if (!FIRST || chunk >= kGroups) barrier_wait(&s.k_full[chunk], 0);
        fence_operand(score);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            wgmma(score, descriptor(s.q) + i * 2, descriptor(s.k[chunk]) + i * 2, i > 0);
        wgmma_commit();
    };
    auto start_output = [&](unsigned (&p)[4][4], int chunk, bool first) {
        barrier_wait(&s.v_full[chunk], 0);
        fence_operand(acc);
        fence_operand(p);
        wgmma_fence();
        // The second panel is s.ones: 8 of its columns give the row sums.
        const unsigned v = descriptor(s.v[chunk], (kMaxChunks - chunk) * kChunk * 128);
#pragma unroll
        for (int i = 0; i < 4; ++i) wgmma(acc, p[i], v + i * 128, i > 0 || !first);
        wgmma_commit();
    };
    auto mask_chunk = [&](float (&score)[32], int chunk) {
        if (MASKED) mask_keys(score, chunk * kChunk, first_row + warp_row + lane / 4, seq_len);
    };
    auto find_row_max = [&](const float (&score)[32], float (&row_max)[2]) {
        row_max[0] = row_max[1] = -1e30f;
#pragma unroll
        for (int i = 0; i < 32; ++i)
            row_max[i / 2 % 2] = fmaxf(row_max[i / 2 % 2], score[i]);
        row_max[0] = quad_max(row_max[0]) * to_log2;
        row_max[1] = quad_max(row_max[1]) * to_log2;
    };
    auto exponentiate = [&](float (&score)[32]) {
#pragma unroll
        for (int i = 0; i < 32; ++i)
            score[i] = exp2_fast(fmaf(score[i], to_log2, -reference[i / 2 % 2]));
    };
    auto too_large = [&](const unsigned (&p)[4][4]) {
        unsigned largest = p[0][0];
#pragma unroll
        for (int i = 1; i < 16; ++i) largest = max_pair(largest, p[i / 4][i % 4]);
        return __any_sync(~0u, largest >> 16 >= kTooLarge || (largest & 0xffffu) >= kTooLarge);
    };
    // The reference for all chunks is the row maximum of the first. If a later chunk exceeds it by
    // too much, its warp raises the reference and rescales the output. It recomputes the scores
    // with mma.sync, which has the accumulator layout of wgmma. No wgmma may be in flight.
    auto raise_references = [&](unsigned (&p)[4][4], int chunk) {
        float score[32] = {}, row_max[2], rescale[2];
#pragma unroll 1
        for (int i = 0; i < 8; ++i) {
            const int offset = swizzled(lane % 16, i);
            unsigned a[2], b;
            ldmatrix_x2(a, shared_address(s.q) + warp_row * 128 + offset);
#pragma unroll
            for (int key = 0; key < kChunk; key += 8) {
                ldmatrix_x1(b, shared_address(s.k[chunk]) + key * 128 + offset);
                mma(score + key / 2, a, b);
            }
        }
        mask_chunk(score, chunk);
        find_row_max(score, row_max);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float raised = fmaxf(reference[half], row_max[half]);
            rescale[half] = exp2_fast(reference[half] - raised);
            reference[half] = raised;
        }
        scale_rows(acc, rescale);
        exponentiate(score);
        pack_operand(p, score);
    };

    if (!FIRST) barrier_wait(&s.q_full, 0);
    if constexpr (kGroupChunks > 0) {
        // Scores and operands are double-buffered: the next scores are computed during the
        // exponentials of this chunk, and an output product may still run when the next starts.
        float score[2][32];
        unsigned p[2][4][4];
        start_scores(score[0], group);
        start_scores(score[1], group + 2);
#pragma unroll
        for (int j = 0; j < kGroupChunks; ++j) {
            const int buffer = j % 2, chunk = 2 * j + group;
            // Started after these scores: an output product and the next scores, if there are any.
            if (j > 0 && j + 1 < kGroupChunks)
                wgmma_wait<2>();
            else
                wgmma_wait<1>();
            fence_operand(score[buffer]);
            if (j >= 2) fence_operand(p[buffer]);
            mask_chunk(score[buffer], chunk);
            if (j == 0) find_row_max(score[buffer], reference);
            exponentiate(score[buffer]);
            pack_operand(p[buffer], score[buffer]);
            if (j > 0 && too_large(p[buffer])) {
                wgmma_wait<0>();
                fence_operand(acc);
                raise_references(p[buffer], chunk);
            }
            start_output(p[buffer], chunk, j == 0);
            if (j + 2 < kGroupChunks) start_scores(score[buffer], chunk + 4);
        }
        wgmma_wait<0>();
        fence_operand(acc);
    } else if (group < chunks) {
        float score[32];
        unsigned p[4][4];
        int chunk = group;
        start_scores(score, chunk);
        wgmma_wait<0>();
        fence_operand(score);
        mask_chunk(score, chunk);
        find_row_max(score, reference);
        exponentiate(score);
        pack_operand(p, score);
        bool first = true;
#pragma unroll 1
        for (; chunk + 2 < chunks; chunk += 2) {
            start_scores(score, chunk + 2);
            start_output(p, chunk, first);
            first = false;
            wgmma_wait<1>();
            fence_operand(score);
            mask_chunk(score, chunk + 2);
            exponentiate(score);
            fence_operand(score);
            // ptxas moves no wgmma wait across this loop: the wait stays behind the exponentials.
            barrier_wait(&s.v_full[chunk + 2], 0);
            wgmma_wait<0>();
            fence_operand(acc);
            fence_operand(p);
            pack_operand(p, score);
            if (too_large(p)) raise_references(p, chunk + 2);
        }
        start_output(p, chunk, first);
        wgmma_wait<0>();
        fence_operand(acc);
    } else {
#pragma unroll
        for (int i = 0; i < 36; ++i) acc[i] = 0.0f;
    }

    // Each warpgroup finishes half of the columns and passes the other half to the other warpgroup.
#pragma unroll
    for (int i = 0; i < 16; i += 4)
        s.exchange[group][i / 4][thread] =
            group ? make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3])
                  : make_float4(acc[16 + i], acc[17 + i], acc[18 + i], acc[19 + i]);
    s.exchange[group][4][thread] = make_float4(reference[0], reference[1], acc[32], acc[34]);
    __syncthreads();
    const float4 other = s.exchange[1 - group][4][thread];
    float weight[2], other_weight[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float other_reference = half ? other.y : other.x;
        const float other_sum = half ? other.w : other.z;
        const float row_max = fmaxf(reference[half], other_reference);
        weight[half] = exp2_fast(reference[half] - row_max);
        other_weight[half] = exp2_fast(other_reference - row_max);
        const float inverse = reciprocal(
            fmaf(weight[half], acc[32 + 2 * half], other_weight[half] * other_sum));
        weight[half] *= inverse;
        other_weight[half] *= inverse;
    }
    float merged[16];
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        const float4 vector = s.exchange[1 - group][i / 4][thread];
        const float partial[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
            merged[i + j] = fmaf(group ? acc[16 + i + j] : acc[i + j], weight[j / 2],
                                 partial[j] * other_weight[j / 2]);
    }
    // Stage the output in s.q, which no warp reads any more, for 16-byte stores.
#pragma unroll
    for (int n = 0; n < 4; n += 2)
        stmatrix(
            shared_address(s.q) + swizzled(warp_row + lane % 16, 4 * group + n + lane / 16),
            pack(merged[4 * n], merged[4 * n + 1]), pack(merged[4 * n + 2], merged[4 * n + 3]),
            pack(merged[4 * n + 4], merged[4 * n + 5]), pack(merged[4 * n + 6], merged[4 * n + 7]));
    __syncwarp();
    uint4* to = reinterpret_cast<uint4*>(out)
        + (static_cast<size_t>(head) * seq_len + first_row + warp_row) * 8;
#pragma unroll
    for (int i = lane; i < 64; i += 32) {
        const int row = i / 4, vector = 4 * group + i % 4;
        if (!MASKED || first_row + warp_row + row < seq_len)
            to[row * 8 + vector] = *reinterpret_cast<const uint4*>(
                reinterpret_cast<const char*>(s.q) + swizzled(warp_row + row, vector));
    }
}
