// Up to 256 keys of head dimension 128, all of them in shared memory. Two warpgroups have 64 rows each and
// queries in registers, begin with other keys, and wait for nobody but the keys that come. As in fix23.cu
// exponentials of 16 keys stand between the products of others, a row's reference is its largest score of
// the first 32 keys, whose probability is 1, and its sum says at the end whether that was too low.
#include "attention.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
constexpr float kMostSum = 1e30f;
#else
#define MMA_TYPES "f32.f16.f16.f32"
constexpr float kMostSum = 6e4f;  // of probabilities that a half holds
#endif
constexpr int kGroups = 2;
constexpr int kRows = 64;  // of a warpgroup
constexpr int kChunk = 64;
constexpr int kMost = 4;  // chunks
constexpr int kSteps = kHeadDim / 16, kPieces = kHeadDim / 8;  // a row is so many pieces of 16 bytes
static_assert(kPanels == 2);

struct Shared {
    Element q[kGroups][kPanels][kRows * 64];
    Element k[kMost][kPanels][kChunk * 64], v[kMost][kPanels][kChunk * 64];
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
    int chunks;  // those that the warpgroup's rows see
    unsigned q[kSteps][4];
    float acc[kHeadDim / 2], reference[2], sum[2];  // log2; of this thread's columns

    // The second warpgroup has the first two chunks the other way round.
    __device__ __forceinline__ int chunk_of(int turn) const {
        return turn < 2 && chunks > 1 ? turn ^ group : turn;
    }

    // Of a chunk, so many of the columns from this thread's first on count for row g or g + 8.
    __device__ __forceinline__ int seen(int chunk, int half) const {
        const int row = first_row + lane / 4 + 8 * half;
        return (CAUSAL ? min(seq_len, row + 1) : seq_len) - (chunk * kChunk + lane % 4 * 2);
    }

    __device__ __forceinline__ void find_reference(const float (&score)[32]) {
        float most[4] = {-1e30f, -1e30f, -1e30f, -1e30f};
        const int limit[2] = {seen(chunk_of(0), 0), seen(chunk_of(0), 1)};
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if (!MASKED || i / 4 * 8 + i % 2 < limit[i / 2 % 2]) most[i % 4] = fmaxf(most[i % 4], score[i]);
        reference[0] = quad_max(fmaxf(most[0], most[1])) * to_log2;
        reference[1] = quad_max(fmaxf(most[2], most[3])) * to_log2;
    }

    __device__ __forceinline__ void multiply_queries(float (&score)[32], int chunk, int from, int to) {
#pragma unroll
        for (int i = from; i < to; ++i)
            wgmma_transposed(score, q[i], descriptor(s.k[chunk][i / 4]) + i % 4 * 2, i > 0);
    }

    // Scores are there twice: the next chunk's are made beside this one's exponentials.
    __device__ __forceinline__ void run() {
        float score[2][32];
        unsigned p[2][4][4];
        pin(score[0]);
        pin(q);
        wgmma_fence();
        multiply_queries(score[0], chunk_of(0), 0, kSteps);
        wgmma_commit();
        sum[0] = sum[1] = 0.0f;
#pragma unroll
        for (int turn = 0; turn < kMost; ++turn) {
            const int now = turn % 2, chunk = chunk_of(turn), next = chunk_of(turn + 1);
            const bool more = turn + 1 < kMost, last = turn + 1 == chunks;
            if (turn == 0)
                wgmma_wait<0>();
            else
                wgmma_wait<2>();  // two pieces of the output, started behind these scores
            pin(score[now]);
            if (turn == 0) find_reference(score[0]);
            const int limit[2] = {seen(chunk, 0), seen(chunk, 1)};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float part[8];
#pragma unroll
                for (int e = 0; e < 8; ++e) {
                    const int at = 8 * i + e, half = e / 2 % 2;
                    part[e] = exp2_fast(fmaf(score[now][at], to_log2, -reference[half]));
                    if (MASKED && at / 4 * 8 + at % 2 >= limit[half]) part[e] = 0.0f;
                }
#pragma unroll
                for (int e = 0; e < 8; e += 2) p[now][i][e / 2] = pack(part[e], part[e + 1]);
                sum[0] += part[0] + part[1] + (part[4] + part[5]);
                sum[1] += part[2] + part[3] + (part[6] + part[7]);
                if (i == 0) {
                    barrier_wait(&s.v_full[chunk], 0);
                    if (more && !last) barrier_wait(&s.k_full[next], 0);
                    if (more) pin(score[1 - now]);
                }
                pin(acc);
                pin(p[now][i]);
                wgmma_fence();
                wgmma(acc, p[now][i], descriptor(s.v[chunk][0], kChunk * 128) + i * 128,
                      turn > 0 || i > 0);
                if (more && i < 2)  // of nothing behind the last: nobody looks at it
                    multiply_queries(score[1 - now], next, i * kSteps / 2, (i + 1) * kSteps / 2);
                wgmma_commit();
            }
            if (last) break;
        }
        wgmma_wait<0>();
        pin(acc);
    }

    // The same by a warp alone, with a reference that moves. Fragments of mma.sync and wgmma are laid out
    // alike.
    __device__ __forceinline__ void run_again() {
        reference[0] = reference[1] = -1e30f;
        sum[0] = sum[1] = 0.0f;
#pragma unroll
        for (int i = 0; i < kHeadDim / 2; ++i) acc[i] = 0.0f;
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; ++chunk) {
            float score[32] = {}, rescale[2];
            unsigned p[4][4], b;
#pragma unroll
            for (int i = 0; i < kPieces; ++i)
#pragma unroll
                for (int key = 0; key < kChunk; key += 8) {
                    load_matrix(b, shared_address(s.k[chunk][i / 8]) + key * 128 + swizzled(lane % 8, i % 8));
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
                sum[half] *= rescale[half];
            }
            multiply(acc, rescale);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                score[i] = exp2_fast(fmaf(score[i], to_log2, -reference[i / 2 % 2]));
                sum[i / 2 % 2] += score[i];
            }
            pack_operand(p, score);
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int column = 0; column < kPieces; ++column) {
                    load_transposed(b, shared_address(s.v[chunk][column / 8]) + i * 1024 +
                                           swizzled(lane % 8, column % 8));
                    mma(acc + 4 * column, p[i / 2] + i % 2 * 2, b);
                }
        }
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
    const int block_row = blockIdx.x * kGroups * kRows, group_row = block_row + group * kRows;
    const int warp_row = warp % 4 * 16;
    auto chunks_upto = [&](int rows) {
        return ((CAUSAL ? min(seq_len, rows) : seq_len) + kChunk - 1) / kChunk;
    };
    const int all = chunks_upto(block_row + kGroups * kRows);
    const size_t before = static_cast<size_t>(head) * seq_len * kHeadDim;
    Work work{s, group, lane, group_row + warp_row, seq_len, to_log2, chunks_upto(group_row + kRows)};

    // What is needed first comes without the copy engine, which has to fetch its descriptors: a
    // warpgroup's first keys, and each warp's queries. Rows that are not there are copies of the last.
    const int first = min(group, all - 1), piece = lane % kPieces;
    if (first == group) {
        const unsigned to = shared_address(s.k[first][piece / 8]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = local / kPieces + 8 * i, key = first * kChunk + row;
            copy_piece(to + swizzled(row, piece % 8),
                       k + before + (MASKED ? min(key, seq_len - 1) : key) * kHeadDim + piece * 8);
        }
    }
    {
        const unsigned to = shared_address(s.q[group][piece / 8]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = warp_row + lane / kPieces + 2 * i;
            copy_piece(to + swizzled(row, piece % 8),
                       q + before + min(group_row + row, seq_len - 1) * kHeadDim + piece * 8);
        }
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < kMost; ++i) {
            barrier_init(&s.k_full[i], 1);
            barrier_init(&s.v_full[i], 1);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const int own = warp % 4;  // the chunk that a warp asks for, of V or of K
    if (lane == 0 && own < all && (group == 0 || own >= kGroups)) {
        Barrier* full = group ? &s.k_full[own] : &s.v_full[own];
        barrier_expect(full, kChunk * kHeadDim * 2);
        for (int panel = 0; panel < kPanels; ++panel)
            copy_box(group ? s.k[own][panel] : s.v[own][panel], group ? k_map : v_map, panel * 64,
                     own * kChunk, head, full);
    }
    __syncwarp();
    wait_for_pieces();
    async_proxy_fence();
    named_barrier_sync(1 + group, 128);
    if (local == 0 && first == group) barrier_arrive(&s.k_full[first]);
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
        load_operand(work.q[i], shared_address(s.q[group][i / 4]) +
                                    swizzled(warp_row + lane % 16, 2 * (i % 4) + lane / 16));
    if (group_row >= seq_len) return;
    barrier_wait(&s.k_full[work.chunk_of(0)], 0);
    work.run();
    const float whole[2] = {quad_sum(work.sum[0]), quad_sum(work.sum[1])};
    float inverse[2] = {reciprocal(whole[0]), reciprocal(whole[1])};
    if (__any_sync(~0u, !(fmaxf(whole[0], whole[1]) < kMostSum))) {
        work.run_again();
        for (int half = 0; half < 2; ++half) inverse[half] = reciprocal(quad_sum(work.sum[half]));
    }
    const int row = group_row + warp_row;
    store_output(out + before + static_cast<size_t>(row) * kHeadDim, seq_len - row, s.q[group][0], kRows,
                 warp_row, work.acc, inverse);
}
