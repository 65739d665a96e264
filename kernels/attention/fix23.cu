// For up to 512 keys, as fix16.cu, but the reference of a row is its largest score of the first eight
// keys, which both warpgroups multiply for themselves, and nobody looks for one that exceeds it by too
// much: such a row's sum says so in the end, and the block goes through it once more as fix16.cu does.
#include "attention.cuh"
#include "ones.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
constexpr unsigned kTooLarge = 0x7180u;  // 2^100
#else
#define MMA_TYPES "f32.f16.f16.f32"
constexpr unsigned kTooLarge = 0x7800u;  // 2^15
#endif
// So far above the first scores (log2) that halves hold what is 2^24 times as much as those, and of a row
// where those are the largest what is 2^-16 of them.
constexpr float kAbove = 8.0f;
constexpr float kMostSum = 1e30f;  // of a row's exponentials: one that was too large makes it infinite
constexpr int kGroups = 2;
constexpr int kRows = 64;
constexpr int kChunk = 64;
constexpr int kMost = 8;       // chunks
constexpr int kOwn = CHUNKS;   // chunks of each warpgroup; 0: known when it runs

struct Shared {
    Element q[kRows * 64];
    Element k[kMost][kChunk * 64], v[kMost][kChunk * 64], ones[kChunk * 64];
    float4 exchange[kGroups][5][128];  // half of the columns; references and sums
    Barrier q_full, k_full[kMost], v_full[kMost];
};
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

// 8 x 8 matrices of 16-bit numbers: lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(unsigned (&to)[2], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(from) : "memory");
}

__device__ __forceinline__ void load_matrix(unsigned& to, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(to) : "r"(from) : "memory");
}

// d = a b + d: a 16 x 8, b 8 x 8.
__device__ __forceinline__ void mma(float* d, const unsigned (&a)[2], unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col." MMA_TYPES
                 " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

// Of pairs that are not negative: those compare as their bits do.
__device__ __forceinline__ unsigned larger_pair(unsigned a, unsigned b) {
    asm("max.s16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
}

// d = a b^T (+ d) for eight rows of b.
__device__ __forceinline__ void wgmma(float (&d)[4], unsigned a, unsigned b, int accumulate) {
    asm volatile("{.reg .pred p; .reg .b64 a, b; setp.ne.s32 p, %6, 0;\n"
                 "mov.b64 a, {%4, " DESCRIPTOR_HIGH "};\n"
                 "mov.b64 b, {%5, " DESCRIPTOR_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16." OPERANDS
                 "{%0, %1, %2, %3}, a, b, p, 1, 1, 0, 0;}"
                 : OUT_4(0) : "r"(a), "r"(b), "r"(accumulate));
}

extern "C" __global__ void __launch_bounds__(128 * kGroups, 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out, int seq_len,
                  float to_log2) {
    extern __shared__ char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32, local = threadIdx.x % 128, head = blockIdx.y;
    const int first_row = blockIdx.x * kRows, warp_row = warp % 4 * 16;
    const int keys = CAUSAL ? min(seq_len, first_row + kRows) : seq_len;
    const int chunks = kOwn ? kGroups * kOwn : (keys + kChunk - 1) / kChunk;

    // Warp w fetches chunk w: none waits for another's barriers to be ready.
    if (lane == 0) {
        if (warp == 0) barrier_init(&s.q_full, 1);
        if (warp < chunks) {
            barrier_init(&s.k_full[warp], 1);
            barrier_init(&s.v_full[warp], 1);
        }
        barrier_init_fence();
        auto fetch = [&](Element* to, const TensorMap& map, int first, Barrier* full) {
            barrier_expect(full, kChunk * 128);
            copy_box(to, map, 0, first, head, full);
        };
        if (warp == 0) fetch(s.q, q_map, first_row, &s.q_full);
        if (warp < chunks) {
            fetch(s.k[warp], k_map, warp * kChunk, &s.k_full[warp]);
            fetch(s.v[warp], v_map, warp * kChunk, &s.v_full[warp]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i)
        reinterpret_cast<uint4*>(s.ones)[threadIdx.x + i * 256] =
            make_uint4(kOnes, kOnes, kOnes, kOnes);
    async_proxy_fence();
    __syncthreads();

    float acc[36], reference[2];  // log2; the last four accumulators are sums
    auto find_reference = [&](float (&first)[4]) {
        pin(first);
        if (MASKED) mask_keys(first, 0, first_row + warp_row + lane / 4, seq_len);
        reference[0] = fmaf(quad_max(fmaxf(first[0], first[1])), to_log2, kAbove);
        reference[1] = fmaf(quad_max(fmaxf(first[2], first[3])), to_log2, kAbove);
    };
    auto start_first = [&](float (&first)[4]) {
        barrier_wait(&s.k_full[0], 0);
        pin(first);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            wgmma(first, descriptor(s.q) + i * 2, descriptor(s.k[0]) + i * 2, i > 0);
        wgmma_commit();
    };
    auto start_scores = [&](float (&score)[32], int chunk) {
        barrier_wait(&s.k_full[chunk], 0);
        pin(score);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i)
            wgmma(score, descriptor(s.q) + i * 2, descriptor(s.k[chunk]) + i * 2, i > 0);
        wgmma_commit();
    };
    auto start_output = [&](unsigned (&p)[4][4], int chunk, bool first) {
        barrier_wait(&s.v_full[chunk], 0);
        pin(acc);
        pin(p);
        wgmma_fence();
        const unsigned v = descriptor(s.v[chunk], (kMost - chunk) * kChunk * 128);  // to the ones
#pragma unroll
        for (int i = 0; i < 4; ++i) wgmma(acc, p[i], v + i * 128, i > 0 || !first);
        wgmma_commit();
    };
    auto mask_chunk = [&](float (&score)[32], int chunk) {
        if (MASKED) mask_keys(score, chunk * kChunk, first_row + warp_row + lane / 4, seq_len);
    };
    auto find_largest = [&](const float (&score)[32], float (&largest)[2]) {
        largest[0] = largest[1] = -1e30f;
#pragma unroll
        for (int i = 0; i < 32; ++i)
            largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], score[i]);
        largest[0] = quad_max(largest[0]) * to_log2;
        largest[1] = quad_max(largest[1]) * to_log2;
    };
    auto exponentiate = [&](float (&score)[32]) {
#pragma unroll
        for (int i = 0; i < 32; ++i)
            score[i] = exp2_fast(fmaf(score[i], to_log2, -reference[i / 2 % 2]));
    };
    auto too_large = [&](const unsigned (&p)[4][4]) {
        unsigned most = p[0][0];
#pragma unroll
        for (int i = 1; i < 16; ++i) most = larger_pair(most, p[i / 4][i % 4]);
        return __any_sync(~0u, most >> 16 >= kTooLarge || (most & 0xffffu) >= kTooLarge);
    };
    // The second time the first chunk's largest scores are the reference of all. A chunk that exceeds
    // it by too much is done again against its own: scores by the warp alone (the accumulators of
    // mma.sync and wgmma are laid out alike), with what was summed made smaller. Nothing may be running.
    auto correct = [&](unsigned (&p)[4][4], int chunk) {
        float score[32] = {}, largest[2], rescale[2];
#pragma unroll 1
        for (int i = 0; i < 8; ++i) {
            const int offset = swizzled(lane % 16, i);
            unsigned a[2], b;
            load_matrices(a, shared_address(s.q) + warp_row * 128 + offset);
#pragma unroll
            for (int key = 0; key < kChunk; key += 8) {
                load_matrix(b, shared_address(s.k[chunk]) + key * 128 + offset);
                mma(score + key / 2, a, b);
            }
        }
        mask_chunk(score, chunk);
        find_largest(score, largest);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float to = fmaxf(reference[half], largest[half]);
            rescale[half] = exp2_fast(reference[half] - to);
            reference[half] = to;
        }
        multiply(acc, rescale);
        exponentiate(score);
        pack_operand(p, score);
    };

    barrier_wait(&s.q_full, 0);
    bool again = false;
    while (true) {
        float first[4];
        if constexpr (kOwn > 0) {
            // Scores and operands are there twice: the next scores are on the tensor cores before the
            // exponentials of these begin, and an output need not be waited for before the next.
            float score[2][32];
            unsigned p[2][4][4];
            start_first(first);
            start_scores(score[0], group);
            start_scores(score[1], group + 2);
            wgmma_wait<2>();
            find_reference(first);
#pragma unroll
            for (int j = 0; j < kOwn; ++j) {
                const int now = j % 2, chunk = 2 * j + group;
                // Behind these scores come, where they exist, an output and the next scores.
                if (j > 0 && j + 1 < kOwn)
                    wgmma_wait<2>();
                else
                    wgmma_wait<1>();
                pin(score[now]);
                if (j >= 2) pin(p[now]);
                mask_chunk(score[now], chunk);
                if (j == 0 && again) find_largest(score[now], reference);
                exponentiate(score[now]);
                pack_operand(p[now], score[now]);
                if (j > 0 && again && too_large(p[now])) {
                    wgmma_wait<0>();
                    pin(acc);
                    correct(p[now], chunk);
                }
                start_output(p[now], chunk, j == 0);
                if (j + 2 < kOwn) start_scores(score[now], chunk + 4);
            }
            wgmma_wait<0>();
            pin(acc);
        } else if (group < chunks) {
            float score[32];
            unsigned p[4][4];
            int chunk = group;
            start_first(first);
            start_scores(score, chunk);
            wgmma_wait<1>();
            find_reference(first);
            wgmma_wait<0>();
            pin(score);
            mask_chunk(score, chunk);
            if (again) find_largest(score, reference);
            exponentiate(score);
            pack_operand(p, score);
            bool is_first = true;
#pragma unroll 1
            for (; chunk + 2 < chunks; chunk += 2) {
                start_scores(score, chunk + 2);
                start_output(p, chunk, is_first);
                is_first = false;
                wgmma_wait<1>();
                pin(score);
                mask_chunk(score, chunk + 2);
                exponentiate(score);
                pin(score);
                barrier_wait(&s.v_full[chunk + 2], 0);  // keeps the wait below behind the exponentials
                wgmma_wait<0>();
                pin(acc);
                pin(p);
                pack_operand(p, score);
                if (again && too_large(p)) correct(p, chunk + 2);
            }
            start_output(p, chunk, is_first);
            wgmma_wait<0>();
            pin(acc);
        } else {
#pragma unroll
            for (int i = 0; i < 36; ++i) acc[i] = 0.0f;
            reference[0] = reference[1] = -1e30f;
        }

        // Each warpgroup finishes half of the columns, and gives the other's to it.
#pragma unroll
        for (int i = 0; i < 16; i += 4)
            s.exchange[group][i / 4][local] =
                group ? make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3])
                      : make_float4(acc[16 + i], acc[17 + i], acc[18 + i], acc[19 + i]);
        s.exchange[group][4][local] = make_float4(reference[0], reference[1], acc[32], acc[34]);
        const bool is_finite = acc[32] <= kMostSum && acc[34] <= kMostSum;
        if (!__syncthreads_or(!is_finite && !again)) break;
        again = true;
    }
    const float4 other = s.exchange[1 - group][4][local];
    float share[2] = {1.0f, 1.0f}, other_share[2] = {1.0f, 1.0f};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float other_reference = half ? other.y : other.x, other_sum = half ? other.w : other.z;
        if (again) {
            const float largest = fmaxf(reference[half], other_reference);
            share[half] = exp2_fast(reference[half] - largest);
            other_share[half] = exp2_fast(other_reference - largest);
        }
        const float inverse = reciprocal(
            fmaf(share[half], acc[32 + 2 * half], other_share[half] * other_sum));
        share[half] *= inverse;
        other_share[half] *= inverse;
    }
    float whole[16];
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        const float4 part = s.exchange[1 - group][i / 4][local];
        const float parts[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
            whole[i + j] = fmaf(group ? acc[16 + i + j] : acc[i + j], share[j / 2],
                                parts[j] * other_share[j / 2]);
    }
    // Over the queries, which nobody reads any more.
#pragma unroll
    for (int n = 0; n < 4; n += 2)
        store_matrices(
            shared_address(s.q) + swizzled(warp_row + lane % 16, 4 * group + n + lane / 16),
            pack(whole[4 * n], whole[4 * n + 1]), pack(whole[4 * n + 2], whole[4 * n + 3]),
            pack(whole[4 * n + 4], whole[4 * n + 5]), pack(whole[4 * n + 6], whole[4 * n + 7]));
    __syncwarp();
    uint4* to = reinterpret_cast<uint4*>(out)
        + (static_cast<size_t>(head) * seq_len + first_row + warp_row) * 8;
#pragma unroll
    for (int i = lane; i < 64; i += 32) {
        const int row = i / 4, piece = 4 * group + i % 4;
        if (!MASKED || first_row + warp_row + row < seq_len)
            to[row * 8 + piece] = *reinterpret_cast<const uint4*>(
                reinterpret_cast<const char*>(s.q) + swizzled(warp_row + row, piece));
    }
}
