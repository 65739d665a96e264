// As fix20.py, but with all keys in shared memory at once and the softmax of fix23.cu. Each
// warpgroup has its own 64 rows, so nothing is merged. Up to 256 keys, head dimension 128.
#include "attention.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
constexpr float kMaxSum = 1e30f;
#else
#define MMA_TYPES "f32.f16.f16.f32"
constexpr float kMaxSum = 6e4f;  // below the largest fp16 number, 65504
#endif
constexpr float kMargin = 8.0f;  // see fix23.cu
constexpr int kGroups = 2;
constexpr int kRows = 64;  // per warpgroup
constexpr int kChunk = 64;
constexpr int kMaxChunks = 4;
constexpr int kQueryFragments = kHeadDim / 16;
constexpr int kRowVectors = kHeadDim / 8;  // 16-byte vectors in a row
static_assert(kPanels == 2);

struct SharedStorage {
    Element q[kGroups][kPanels][kRows * 64];
    Element k[kMaxChunks][kPanels][kChunk * 64], v[kMaxChunks][kPanels][kChunk * 64];
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
    int chunks;  // visible to the warpgroup's rows
    unsigned q[kQueryFragments][4];
    float acc[kHeadDim / 2], reference[2], sum[2];  // sum: over this thread's columns

    // Warpgroup 1 computes chunk 1 before chunk 0, if there are two chunks.
    __device__ __forceinline__ int chunk_of(int iteration) const {
        return iteration < 2 && chunks > 1 ? iteration ^ group : iteration;
    }

    // Number of visible keys of a chunk in row g or g + 8, counted from this thread's first column.
    __device__ __forceinline__ int visible_keys(int chunk, int half) const {
        const int row = first_row + lane / 4 + 8 * half;
        return (CAUSAL ? min(seq_len, row + 1) : seq_len) - (chunk * kChunk + lane % 4 * 2);
    }

    __device__ __forceinline__ void find_reference(const float (&score)[32]) {
        float row_max[4] = {-1e30f, -1e30f, -1e30f, -1e30f};
        const int limit[2] = {visible_keys(chunk_of(0), 0), visible_keys(chunk_of(0), 1)};
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if (!MASKED || i / 4 * 8 + i % 2 < limit[i / 2 % 2])
                row_max[i % 4] = fmaxf(row_max[i % 4], score[i]);
        reference[0] = fmaf(quad_max(fmaxf(row_max[0], row_max[1])), to_log2, kMargin);
        reference[1] = fmaf(quad_max(fmaxf(row_max[2], row_max[3])), to_log2, kMargin);
    }

    __device__ __forceinline__ void multiply_queries(float (&score)[32], int chunk, int from,
                                                     int to) {
#pragma unroll
        for (int i = from; i < to; ++i)
            wgmma_transposed(score, q[i], descriptor(s.k[chunk][i / 4]) + i % 4 * 2, i > 0);
    }

    // Scores are double-buffered: the next chunk's scores are computed during this chunk's
    // exponentials.
    __device__ __forceinline__ void run() {
        float score[2][32];
        unsigned p[2][4][4];
        fence_operand(score[0]);
        fence_operand(q);
        wgmma_fence();
        multiply_queries(score[0], chunk_of(0), 0, kQueryFragments);
        wgmma_commit();
        sum[0] = sum[1] = 0.0f;
#pragma unroll
        for (int iteration = 0; iteration < kMaxChunks; ++iteration) {
            const int buffer = iteration % 2;
            const int chunk = chunk_of(iteration), next = chunk_of(iteration + 1);
            const bool has_next = iteration + 1 < kMaxChunks, last = iteration + 1 == chunks;
            if (iteration == 0)
                wgmma_wait<0>();
            else
                wgmma_wait<2>();  // the last two output products may still be in flight
            fence_operand(score[buffer]);
            if (iteration == 0) find_reference(score[0]);
            const int limit[2] = {visible_keys(chunk, 0), visible_keys(chunk, 1)};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float prob[8];
#pragma unroll
                for (int e = 0; e < 8; ++e) {
                    const int j = 8 * i + e, half = e / 2 % 2;
                    prob[e] = exp2_fast(fmaf(score[buffer][j], to_log2, -reference[half]));
                    if (MASKED && j / 4 * 8 + j % 2 >= limit[half]) prob[e] = 0.0f;
                }
#pragma unroll
                for (int e = 0; e < 8; e += 2) p[buffer][i][e / 2] = pack(prob[e], prob[e + 1]);
                sum[0] += prob[0] + prob[1] + (prob[4] + prob[5]);
                sum[1] += prob[2] + prob[3] + (prob[6] + prob[7]);
                if (i == 0) {
                    barrier_wait(&s.v_full[chunk], 0);
                    if (has_next && !last) barrier_wait(&s.k_full[next], 0);
                    if (has_next) fence_operand(score[1 - buffer]);
                }
                fence_operand(acc);
                fence_operand(p[buffer][i]);
                wgmma_fence();
                wgmma(acc, p[buffer][i], descriptor(s.v[chunk][0], kChunk * 128) + i * 128,
                      iteration > 0 || i > 0);
                if (has_next && i < 2)  // after the last chunk, these scores are not used
                    multiply_queries(score[1 - buffer], next, i * kQueryFragments / 2,
                                     (i + 1) * kQueryFragments / 2);
                wgmma_commit();
            }
            if (last) break;
        }
        wgmma_wait<0>();
        fence_operand(acc);
    }

    // Computes the rows again with mma.sync and an online softmax, each warp alone. The fragments
    // of mma.sync and wgmma have the same layout.
    __device__ __forceinline__ void recompute() {
        reference[0] = reference[1] = -1e30f;
        sum[0] = sum[1] = 0.0f;
#pragma unroll
        for (int i = 0; i < kHeadDim / 2; ++i) acc[i] = 0.0f;
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; ++chunk) {
            float score[32] = {}, rescale[2];
            unsigned p[4][4], b;
#pragma unroll
            for (int i = 0; i < kRowVectors; ++i)
#pragma unroll
                for (int key = 0; key < kChunk; key += 8) {
                    ldmatrix_x1(b, shared_address(s.k[chunk][i / 8]) + key * 128 +
                                       swizzled(lane % 8, i % 8));
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
                sum[half] *= rescale[half];
            }
            scale_rows(acc, rescale);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                score[i] = exp2_fast(fmaf(score[i], to_log2, -reference[i / 2 % 2]));
                sum[i / 2 % 2] += score[i];
            }
            pack_operand(p, score);
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int column = 0; column < kRowVectors; ++column) {
                    ldmatrix_x1_trans(b, shared_address(s.v[chunk][column / 8]) + i * 1024 +
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
    SharedStorage& s =
        *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32, thread = threadIdx.x % 128, head = blockIdx.y;
    const int block_row = blockIdx.x * kGroups * kRows, group_row = block_row + group * kRows;
    const int warp_row = warp % 4 * 16;
    auto chunks_before = [&](int row) {
        return ((CAUSAL ? min(seq_len, row) : seq_len) + kChunk - 1) / kChunk;
    };
    const int total_chunks = chunks_before(block_row + kGroups * kRows);
    const size_t head_offset = static_cast<size_t>(head) * seq_len * kHeadDim;
    WarpState state{s,       group,   lane, group_row + warp_row,
                    seq_len, to_log2, chunks_before(group_row + kRows)};

    // Load the warpgroup's first keys and the warp's queries by cp.async: TMA would have to fetch
    // its tensor maps first. Rows out of bounds are copies of the last row.
    const int first_chunk = min(group, total_chunks - 1), vector = lane % kRowVectors;
    if (first_chunk == group) {
        const unsigned to = shared_address(s.k[first_chunk][vector / 8]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = thread / kRowVectors + 8 * i, key = first_chunk * kChunk + row;
            cp_async(to + swizzled(row, vector % 8),
                     k + head_offset + (MASKED ? min(key, seq_len - 1) : key) * kHeadDim +
                         vector * 8);
        }
    }
    {
        const unsigned to = shared_address(s.q[group][vector / 8]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = warp_row + lane / kRowVectors + 2 * i;
            cp_async(to + swizzled(row, vector % 8),
                     q + head_offset + min(group_row + row, seq_len - 1) * kHeadDim + vector * 8);
        }
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < kMaxChunks; ++i) {
            barrier_init(&s.k_full[i], 1);
            barrier_init(&s.v_full[i], 1);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const int warp_chunk = warp % 4;  // loaded by this warp: V in warpgroup 0, K in warpgroup 1
    if (lane == 0 && warp_chunk < total_chunks && (group == 0 || warp_chunk >= kGroups)) {
        Barrier* full = group ? &s.k_full[warp_chunk] : &s.v_full[warp_chunk];
        barrier_expect(full, kChunk * kHeadDim * 2);
        for (int panel = 0; panel < kPanels; ++panel)
            tma_load(group ? s.k[warp_chunk][panel] : s.v[warp_chunk][panel],
                     group ? k_map : v_map, panel * 64, warp_chunk * kChunk, head, full);
    }
    __syncwarp();
    cp_async_wait_all();
    async_proxy_fence();
    named_barrier_sync(1 + group, 128);
    if (thread == 0 && first_chunk == group) barrier_arrive(&s.k_full[first_chunk]);
#pragma unroll
    for (int i = 0; i < kQueryFragments; ++i)
        ldmatrix_x4(state.q[i], shared_address(s.q[group][i / 4]) +
                                    swizzled(warp_row + lane % 16, 2 * (i % 4) + lane / 16));
    if (group_row >= seq_len) return;
    barrier_wait(&s.k_full[state.chunk_of(0)], 0);
    state.run();
    const float row_sum[2] = {quad_sum(state.sum[0]), quad_sum(state.sum[1])};
    float inverse[2] = {reciprocal(row_sum[0]), reciprocal(row_sum[1])};
    if (__any_sync(~0u, !(fmaxf(row_sum[0], row_sum[1]) < kMaxSum))) {
        state.recompute();
        for (int half = 0; half < 2; ++half) inverse[half] = reciprocal(quad_sum(state.sum[half]));
    }
    const int row = group_row + warp_row;
    store_output(out + head_offset + static_cast<size_t>(row) * kHeadDim, seq_len - row,
                 s.q[group][0], kRows, warp_row, state.acc, inverse);
}
