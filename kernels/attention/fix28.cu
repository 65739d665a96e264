// For up to 512 keys, as fix16, with queries in registers and no look back: a row's reference is its
// largest score of its warpgroup's first 32 keys, whose probability is 1, and whether a later one was too
// far above it the sum of the row says, at the end. A warpgroup waits for nobody until then. Exponentials of 16 keys stand
// between the products of others, and each warpgroup finishes half of the rows.
#include "attention.cuh"
#include "ones.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
constexpr float kMostSum = 1e30f;
#else
#define MMA_TYPES "f32.f16.f16.f32"
constexpr float kMostSum = 3e7f;  // 512 times what a half holds; with one that it does not, infinite
#endif
constexpr int kGroups = 2;
constexpr int kRows = 64;
constexpr int kChunk = 64;
constexpr int kMost = 8;  // chunks
constexpr int kTurns = kMost / kGroups;

struct Shared {
    Element q[kGroups][kRows * 64];  // each warpgroup its own
    Element k[kMost][kChunk * 64], v[kMost][kChunk * 64], ones[kChunk * 64];
    float4 parts[kGroups][4][128];   // of rows that the other warpgroup finishes
    float2 softmax[kGroups][128];    // their references (log2) and sums
    Barrier k_full[kMost], v_full[kMost];
};
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

__device__ __forceinline__ void copy_piece(unsigned to, const Element* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void wait_for_pieces() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// An operand of 16 x 16: lane i gives the address of row i % 8 of one of its four 8 x 8 matrices.
__device__ __forceinline__ void load_operand(unsigned (&a)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(from) : "memory");
}

// An 8 x 8 matrix of 16-bit numbers: lane i of the first eight gives the address of row i.
__device__ __forceinline__ void load_matrix(unsigned& to, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(to) : "r"(from) : "memory");
}

__device__ __forceinline__ void load_transposed(unsigned& to, unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(to) : "r"(from) : "memory");
}

// d = a b + d: a 16 x 8, b 8 x 8.
__device__ __forceinline__ void mma(float* d, const unsigned* a, unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col." MMA_TYPES
                 " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

// d = a b^T (+ d): a in registers, b [keys][64] in shared memory, 16 columns of both.
__device__ __forceinline__ void wgmma_transposed(float (&d)[32], const unsigned (&a)[4], unsigned b,
                                                 int accumulate) {
    asm volatile("{.reg .pred p; .reg .b64 b; setp.ne.s32 p, %37, 0;\n"
                 "mov.b64 b, {%36, " DESCRIPTOR_HIGH "};\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16." OPERANDS
                 "{" NAMES_32 "}, {%32, %33, %34, %35}, b, p, 1, 1, 0;}"
                 : OUT_32 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(accumulate));
}

__device__ __forceinline__ void pin(unsigned (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[i])::"memory");
}

struct Work {
    Shared& s;
    int group, lane, first_row, seq_len;  // first_row: of the warp's 16
    float to_log2;
    unsigned q[4][4];
    float acc[36], reference[2];  // the last four accumulators are sums; log2

    // Of a chunk, so many of the columns from this thread's first on count for row g or g + 8.
    __device__ __forceinline__ int seen(int chunk, int half) const {
        const int row = first_row + lane / 4 + 8 * half;
        return (CAUSAL ? min(seq_len, row + 1) : seq_len) - (chunk * kChunk + lane % 4 * 2);
    }

    template <bool kMasked>
    __device__ __forceinline__ void find_reference(const float (&score)[32]) {
        float most[4] = {-1e30f, -1e30f, -1e30f, -1e30f};
        const int limit[2] = {seen(group, 0), seen(group, 1)};
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if (!kMasked || i / 4 * 8 + i % 2 < limit[i / 2 % 2]) most[i % 4] = fmaxf(most[i % 4], score[i]);
        reference[0] = quad_max(fmaxf(most[0], most[1])) * to_log2;
        reference[1] = quad_max(fmaxf(most[2], most[3])) * to_log2;
    }

    __device__ __forceinline__ void multiply_queries(float (&score)[32], int chunk, int from, int to) {
#pragma unroll
        for (int i = from; i < to; ++i)
            wgmma_transposed(score, q[i], descriptor(s.k[chunk]) + i * 2, i > 0);
    }

    __device__ __forceinline__ void multiply_values(const unsigned (&p)[4], int chunk, int i,
                                                    bool accumulate) {
        wgmma(acc, p, descriptor(s.v[chunk], (kMost - chunk) * kChunk * 128) + i * 128, accumulate);
    }

    // Scores are there twice: the next chunk's are made beside this one's exponentials. What of a
    // chunk does not count is taken out of the probabilities, since the accumulators of products
    // that are under way must not be touched under a condition.
    __device__ __forceinline__ void run(int chunks) {
        float score[2][32];
        unsigned p[2][4][4];
        pin(score[0]);
        pin(q);
        wgmma_fence();
        multiply_queries(score[0], group, 0, 4);
        wgmma_commit();
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
            const int now = turn % 2, chunk = kGroups * turn + group;
            const bool more = turn + 1 < kTurns, last = turn + 1 == chunks;
            if (turn == 0)
                wgmma_wait<0>();
            else
                wgmma_wait<2>();  // two pieces of the output, started behind these scores
            pin(score[now]);
            if (turn == 0) {
                if (MASKED && last)
                    find_reference<true>(score[0]);
                else
                    find_reference<false>(score[0]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int e = 8 * i; e < 8 * i + 8; ++e)
                    score[now][e] = exp2_fast(fmaf(score[now][e], to_log2, -reference[e / 2 % 2]));
#pragma unroll
                for (int e = 8 * i; e < 8 * i + 8; e += 2)
                    p[now][i][e / 2 % 4] = pack(score[now][e], score[now][e + 1]);
                if (MASKED && last) {
#pragma unroll
                    for (int e = 8 * i; e < 8 * i + 8; e += 2) {
                        const int left = seen(chunk, e / 2 % 2) - e / 4 * 8;
                        p[now][i][e / 2 % 4] &= left > 1 ? ~0u : left > 0 ? 0xffffu : 0u;
                    }
                }
                if (i == 0) {
                    barrier_wait(&s.v_full[chunk], 0);
                    if (more && !last) barrier_wait(&s.k_full[chunk + kGroups], 0);
                    if (more) pin(score[1 - now]);
                }
                pin(acc);
                pin(p[now][i]);
                wgmma_fence();
                multiply_values(p[now][i], chunk, i, turn > 0 || i > 0);
                if (more && i < 2)  // of nothing behind the last: nobody looks at it
                    multiply_queries(score[1 - now], chunk + kGroups, 2 * i, 2 * i + 2);
                wgmma_commit();
            }
            if (last) break;
        }
        wgmma_wait<0>();
        pin(acc);
    }

    // The same by each warp alone, with a reference that moves. Fragments of mma.sync and wgmma are
    // laid out alike.
    __device__ __forceinline__ void run_again(int chunks) {
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
                    load_matrix(b, shared_address(s.k[chunk]) + key * 128 + swizzled(lane % 8, i));
                    mma(score + key / 2, q[i / 2] + i % 2 * 2, b);
                }
            if (MASKED) mask_keys(score, chunk * kChunk, first_row + lane / 4, seq_len);
            float largest[2] = {reference[0], reference[1]};
#pragma unroll
            for (int i = 0; i < 32; ++i)
                largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], score[i] * to_log2);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                largest[half] = quad_max(largest[half]);
                rescale[half] = exp2_fast(reference[half] - largest[half]);
                reference[half] = largest[half];
            }
            multiply(acc, rescale);
#pragma unroll
            for (int i = 0; i < 32; ++i)
                score[i] = exp2_fast(fmaf(score[i], to_log2, -reference[i / 2 % 2]));
            pack_operand(p, score);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
#pragma unroll
                for (int column = 0; column < 8; ++column) {
                    load_transposed(b, shared_address(s.v[chunk]) + i * 1024 + swizzled(lane % 8, column));
                    mma(acc + 4 * column, p[i / 2] + i % 2 * 2, b);
                }
                mma(acc + 32, p[i / 2] + i % 2 * 2, kOnes);
            }
        }
    }

    // Rows g + 8 of warpgroup 0 and rows g of warpgroup 1 are finished by the other.
    __device__ __forceinline__ void give_rows() {
        const int local = threadIdx.x % 128;
#pragma unroll
        for (int i = 0; i < 32; i += 8)
            s.parts[group][i / 8][local] = group
                ? make_float4(acc[i], acc[i + 1], acc[i + 4], acc[i + 5])
                : make_float4(acc[i + 2], acc[i + 3], acc[i + 6], acc[i + 7]);
        s.softmax[group][local] =
            group ? make_float2(reference[0], acc[32]) : make_float2(reference[1], acc[34]);
    }
};

extern "C" __global__ void __launch_bounds__(128 * kGroups, 1)
attention_forward(const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
                  const Element* __restrict__ q, const Element* __restrict__ k,
                  Element* __restrict__ out, int seq_len, float to_log2) {
    extern __shared__ char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32, local = threadIdx.x % 128, head = blockIdx.y;
    const int block_row = blockIdx.x * kRows, warp_row = warp % 4 * 16;
    const int keys = CAUSAL ? min(seq_len, block_row + kRows) : seq_len;
    const int all = (keys + kChunk - 1) / kChunk, chunks = (all - group + 1) / kGroups;
    const size_t before = static_cast<size_t>(head) * seq_len * 64;
    Work work{s, group, lane, block_row + warp_row, seq_len, to_log2};

    // What is needed first comes without the copy engine, which has to fetch its descriptors: a
    // warpgroup's first keys, and each warp's queries. Rows that are not there are copies of the last.
    if (chunks > 0) {
        const unsigned to = shared_address(s.k[group]) + swizzled(local / 8, local % 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = group * kChunk + local / 8 + 16 * i;
            copy_piece(to + i * 16 * 128,
                       k + before + (MASKED ? min(row, seq_len - 1) : row) * 64 + local % 8 * 8);
        }
    }
    {
        const unsigned to = shared_address(s.q[group]) + swizzled(warp_row + lane / 8, lane % 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = block_row + warp_row + lane / 8 + 4 * i;
            copy_piece((to ^ i % 2 * 64) + i * 4 * 128,  // four rows on, chunks are swizzled by 4 more
                       q + before + (MASKED ? min(row, seq_len - 1) : row) * 64 + lane % 8 * 8);
        }
    }
    // A warp fetches one chunk of its warpgroup: nobody waits for another's barriers to be ready.
    const int own = kGroups * (warp % 4) + group;
    if (lane == 0 && own < all) {
        barrier_init(&s.v_full[own], 1);
        if (own != group) barrier_init(&s.k_full[own], 1);
        barrier_init_fence();
        if (own != group) {
            barrier_expect(&s.k_full[own], kChunk * 128);
            copy_box(s.k[own], k_map, 0, own * kChunk, head, &s.k_full[own]);
        }
        barrier_expect(&s.v_full[own], kChunk * 128);
        copy_box(s.v[own], v_map, 0, own * kChunk, head, &s.v_full[own]);
    }
    __syncwarp();
    // The first eight columns are all that is read of it. Both warpgroups write the same.
    if (local < kChunk)
        *reinterpret_cast<uint4*>(reinterpret_cast<char*>(s.ones) + swizzled(local, 0)) =
            make_uint4(kOnes, kOnes, kOnes, kOnes);
    wait_for_pieces();
    async_proxy_fence();
    named_barrier_sync(1 + group, 128);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        load_operand(work.q[i], shared_address(s.q[group])
                                    + swizzled(warp_row + lane % 16, 2 * i + lane / 16));

    float (&acc)[36] = work.acc;
    float (&reference)[2] = work.reference;
    reference[0] = reference[1] = -1e30f;
    if (chunks > 0) {
        work.run(chunks);
    } else {
#pragma unroll
        for (int i = 0; i < 36; ++i) acc[i] = 0.0f;
    }
    work.give_rows();
    if (__syncthreads_or(!(fmaxf(acc[32], acc[34]) < kMostSum))) {
        work.run_again(chunks);
        work.give_rows();
        __syncthreads();
    }

    const float own_reference = group ? reference[1] : reference[0];
    const float own_sum = group ? acc[34] : acc[32];
    const float2 other = s.softmax[1 - group][local];
    const float largest = fmaxf(own_reference, other.x);
    float share = exp2_fast(own_reference - largest), other_share = exp2_fast(other.x - largest);
    const float inverse = reciprocal(fmaf(share, own_sum, other_share * other.y));
    share *= inverse;
    other_share *= inverse;
    unsigned pairs[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float4 part = s.parts[1 - group][i][local];
        const float parts[4] = {part.x, part.y, part.z, part.w};
        float whole[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int at = 8 * i + e / 2 * 4 + e % 2;
            whole[e] = fmaf(group ? acc[at + 2] : acc[at], share, parts[e] * other_share);
        }
        pairs[2 * i] = pack(whole[0], whole[1]);
        pairs[2 * i + 1] = pack(whole[2], whole[3]);
    }
    // Over queries, which nobody reads any more: whole lines are written.
    const int own_row = warp_row + 8 * group, first_row = block_row + own_row;
#pragma unroll
    for (int n = 0; n < 8; n += 4)
        store_matrices(shared_address(s.q[0]) + swizzled(own_row + lane % 8, n + lane / 8),
                       pairs[n], pairs[n + 1], pairs[n + 2], pairs[n + 3]);
    __syncwarp();
    uint4* to = reinterpret_cast<uint4*>(out + before + static_cast<size_t>(first_row) * 64);
#pragma unroll
    for (int i = lane; i < 64; i += 32)
        if (!MASKED || first_row + i / 8 < seq_len)
            to[i] = *reinterpret_cast<const uint4*>(
                reinterpret_cast<const char*>(s.q[0]) + swizzled(own_row + i / 8, i % 8));
}
