// As fix14.cu, but 4D tensor maps read Q, K and V as views with any strides. The output is
// [B, S, H, D], so the rows of a head are apart in memory.
#include "served.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif

constexpr int kGroups = GROUPS;      // consumer warpgroups
constexpr int kRows = 64 * kGroups;  // query rows per tile
constexpr int kTile = TILE;          // keys per tile
constexpr int kStages = STAGES;      // K and V tiles in the ring buffer
constexpr int kQStages = 2;          // Q tiles in the ring buffer

// Returns x. Hides it from the compiler, so that values derived from x are recomputed for each tile
// instead of kept in registers: with four warpgroups, no registers are left for them.
__device__ __forceinline__ int rematerialized(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

__device__ __forceinline__ float log2_fast(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// Load 8 x 8 matrices of 16-bit elements. Lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x2(unsigned (&fragment)[2], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fragment[0]), "=r"(fragment[1]) : "r"(address) : "memory");
}

__device__ __forceinline__ void ldmatrix_x1(unsigned& fragment, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(fragment) : "r"(address) : "memory");
}

// d = a b + d: a 16 x 8, b 8 x 8.
__device__ __forceinline__ void mma(float* d, const unsigned (&a)[2], unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col." MMA_TYPES
                 " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

// Computes the scores of one warp's 16 rows, from ``row`` of a Q tile on, with mma.sync: a single
// warp cannot issue wgmma. Both have the same accumulator layout. Rarely used, so written for few
// registers instead of speed.
__device__ __forceinline__ void warp_scores(float (&score)[kTile / 2], const Element* q,
                                            int q_rows, int row, const Element* k) {
    const int lane = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) score[i] = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < kHeadDim / 8; ++chunk) {
        // ``row`` and ``key`` are multiples of 8, so both rows have the same swizzle.
        const int offset = swizzled(lane, chunk % 8);
        unsigned a[2], b;
        ldmatrix_x2(a, shared_address(q) + (chunk / 8 * q_rows + row) * 128 + offset);
#pragma unroll
        for (int key = 0; key < kTile; key += 8) {
            ldmatrix_x1(b, shared_address(k) + (chunk / 8 * kTile + key) * 128 + offset);
            mma(score + key / 2, a, b);
        }
    }
}

struct SharedStorage {
    Element q[kQStages][kPanels][kRows * 64];
    Element k[kStages][kPanels][kTile * 64], v[kStages][kPanels][kTile * 64];
    int work_index[kQStages];
    Barrier q_full[kQStages], q_empty[kQStages];
    Barrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

// If a thread's sum of probabilities of a row and tile reaches this, the reference is raised. It is
// below the maximum of fp16, 2^16.
constexpr float kMaxSum = 32768.0f;

struct WorkTile {
    int first_row, head, key_tiles;
};

// The tiles of all heads are ordered by sections of ``heads_in_l2`` heads, whose K and V fit into
// L2 together. Under a causal mask, the rows of a section with the most keys come first.
__device__ __forceinline__ WorkTile work_tile_at(int index, int row_tiles, int heads,
                                                 int heads_in_l2, int seq_len) {
    const int first_head = index / (heads_in_l2 * row_tiles) * heads_in_l2;
    const int section_index = index - first_head * row_tiles;
    const int section_heads = min(heads_in_l2, heads - first_head);
    const int row_tile =
        CAUSAL ? row_tiles - 1 - section_index / section_heads : section_index % row_tiles;
    WorkTile work;
    work.head =
        first_head + (CAUSAL ? section_index % section_heads : section_index / row_tiles);
    work.first_row = row_tile * kRows;
    const int key_end = CAUSAL ? min(seq_len, work.first_row + kRows) : seq_len;
    work.key_tiles = (key_end + kTile - 1) / kTile;
    return work;
}

// heads: of all sequences.
// counter: tiles taken and blocks finished. Both are zero before and after a launch.
// to_log2: softmax scale times log2(e).
extern "C" __global__ void __launch_bounds__(128 * (kGroups + 1), 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out,
                  int* __restrict__ counter, int seq_len, int heads, int heads_per_sequence,
                  int heads_in_l2, float to_log2) {
    extern __shared__ char raw[];
    SharedStorage& s =
        *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32;
    const int row_tiles = (seq_len + kRows - 1) / kRows, work_tiles = row_tiles * heads;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kQStages; ++i) {
            barrier_init(&s.q_full[i], 1);
            barrier_init(&s.q_empty[i], 4 * kGroups);
        }
        for (int stage = 0; stage < kStages; ++stage) {
            barrier_init(&s.k_full[stage], 1);
            barrier_init(&s.v_full[stage], 1);
            barrier_init(&s.k_empty[stage], 4 * kGroups);
            barrier_init(&s.v_empty[stage], 4 * kGroups);
        }
        barrier_init_fence();
    }
    __syncthreads();

    if (group == kGroups) {
        decrease_registers<kGroups == 3 ? 32 : 24>();
        if (warp != 4 * kGroups || lane != 0) return;
        prefetch(q_map);
        prefetch(k_map);
        prefetch(v_map);
        int work_index = blockIdx.x;
        for (int round = 0, step = 0;; ++round) {
            const int q_stage = round % kQStages;
            barrier_wait(&s.q_empty[q_stage], round / kQStages & 1 ^ 1);
            s.work_index[q_stage] = work_index;
            if (work_index >= work_tiles) {
                barrier_arrive(&s.q_full[q_stage]);
                break;
            }
            const WorkTile work = work_tile_at(work_index, row_tiles, heads, heads_in_l2, seq_len);
            const int batch = work.head / heads_per_sequence;
            const int head = work.head - batch * heads_per_sequence;
            barrier_expect(&s.q_full[q_stage], sizeof(s.q[0]));
            for (int panel = 0; panel < kPanels; ++panel)
                tma_load(s.q[q_stage][panel], q_map, panel * 64, work.first_row, head, batch,
                         &s.q_full[q_stage]);
            for (int tile = work.key_tiles - 1; tile >= 0; --tile, ++step) {
                const int stage = step % kStages;
                const unsigned parity = step / kStages & 1 ^ 1;
                barrier_wait(&s.k_empty[stage], parity);
                barrier_expect(&s.k_full[stage], sizeof(s.k[0]));
                for (int panel = 0; panel < kPanels; ++panel)
                    tma_load(s.k[stage][panel], k_map, panel * 64, tile * kTile, head, batch,
                             &s.k_full[stage]);
                barrier_wait(&s.v_empty[stage], parity);
                barrier_expect(&s.v_full[stage], sizeof(s.v[0]));
                for (int panel = 0; panel < kPanels; ++panel)
                    tma_load(s.v[stage][panel], v_map, panel * 64, tile * kTile, head, batch,
                             &s.v_full[stage]);
            }
            work_index = gridDim.x + atomicAdd(counter, 1);
        }
        // The last block to finish resets the counters for the next launch.
        if (atomicAdd(counter + 1, 1) == gridDim.x - 1) counter[0] = counter[1] = 0;
        return;
    }

    increase_registers<kGroups == 2 ? 240 : kGroups == 3 ? 160 : 112>();
    const int warp_row = warp * 16;
    int step = 0;  // tiles of keys so far: the position in the ring buffer
    for (int round = 0;; ++round) {
        const int q_stage = round % kQStages;
        barrier_wait(&s.q_full[q_stage], round / kQStages & 1);
        if (s.work_index[q_stage] >= work_tiles) break;
        const WorkTile work =
            work_tile_at(s.work_index[q_stage], row_tiles, heads, heads_in_l2, seq_len);
        const int row = work.first_row + warp_row + lane / 4;
        const unsigned q_tile = descriptor(s.q[q_stage][0]) + group * (64 * 128 >> 4);
        float acc[kHeadDim / 2] = {}, score[kTile / 2];
        unsigned p[kTile / 16][4];
        Softmax softmax;
        softmax.to_log2 = to_log2;

        auto start_scores = [&](int ring_index) {
            const int stage = ring_index % kStages;
            barrier_wait(&s.k_full[stage], ring_index / kStages & 1);
            fence_operand(score);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < kHeadDim / 16; ++i)
                wgmma(score, q_tile + i / 4 * (kRows * 128 >> 4) + i % 4 * 2,
                      descriptor(s.k[stage][i / 4]) + i % 4 * 2, i > 0);
            wgmma_commit();
        };
        auto start_output = [&](int ring_index) {
            const int stage = ring_index % kStages;
            barrier_wait(&s.v_full[stage], ring_index / kStages & 1);
            fence_operand(acc);
            fence_operand(p);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < kTile / 16; ++i)
                wgmma(acc, p[i], descriptor(s.v[stage][0], kTile * 128) + i * 128, 1);
            wgmma_commit();
        };
        auto release = [&](Barrier* barriers, int ring_index) {
            if (lane == 0) barrier_arrive(&barriers[ring_index % kStages]);
        };

        float sum[2];  // this thread's probabilities of the current tile
        auto exponentiate = [&]() {
            sum[0] = sum[1] = 0.0f;
#pragma unroll
            for (int i = 0; i < kTile / 2; ++i) {
                score[i] = exp2_fast(softmax.exponent(score[i], i));
                sum[i / 2 % 2] += score[i];
            }
        };
        // For a tile whose scores exceed the references by far. Raises the references and scales
        // the probabilities down. If one overflowed fp32, the warp computes its scores again.
        auto raise_references = [&](int ring_index, int first_key) {
            wgmma_wait<0>();
            fence_operand(acc);
            fence_operand(p);
            float max_probability[2] = {1.0f, 1.0f};
#pragma unroll
            for (int i = 0; i < kTile / 2; ++i)
                max_probability[i / 2 % 2] = fmaxf(max_probability[i / 2 % 2], score[i]);
            max_probability[0] = quad_max(max_probability[0]);
            max_probability[1] = quad_max(max_probability[1]);
            if (__any_sync(~0u, max_probability[0] + max_probability[1] > 1e36f)) {
                warp_scores(score, s.q[q_stage][0], kRows, warp_row, s.k[ring_index % kStages][0]);
                mask_keys(score, first_key, rematerialized(row), seq_len);
                softmax.update_reference(score);
                exponentiate();
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    softmax.rescale[half] = reciprocal(max_probability[half]);
                    softmax.reference[half] +=
                        log2_fast(max_probability[half]) * reciprocal(softmax.to_log2);
                    softmax.sum[half] *= softmax.rescale[half];
                    sum[half] *= softmax.rescale[half];
                }
                scale_rows(score, softmax.rescale);
            }
            scale_rows(acc, softmax.rescale);
        };

        int tile = work.key_tiles - 1;
        if (CAUSAL) {  // skip tiles of keys that are masked for all rows of this warpgroup
            for (; tile * kTile > work.first_row + group * 64 + 63; --tile, ++step) {
                barrier_wait(&s.k_full[step % kStages], step / kStages & 1);
                release(s.k_empty, step);
                barrier_wait(&s.v_full[step % kStages], step / kStages & 1);
                release(s.v_empty, step);
            }
        }
        start_scores(step);
        wgmma_wait<0>();
        fence_operand(score);
        release(s.k_empty, step);
        mask_keys(score, tile * kTile, row, seq_len);
        softmax.update_reference(score);
        softmax.exponentiate(score);
        pack_operand(p, score);
#pragma unroll 1
        for (; tile > 0; ++step) {
            --tile;
            start_scores(step + 1);
            start_output(step);
            wgmma_wait<1>();
            fence_operand(score);
            mask_keys(score, tile * kTile, row, seq_len);
            exponentiate();
            if (__any_sync(~0u, !(fmaxf(sum[0], sum[1]) < kMaxSum)))
                raise_references(step + 1, tile * kTile);
            release(s.k_empty, step + 1);  // after raise_references read K
            softmax.sum[0] += sum[0];
            softmax.sum[1] += sum[1];
            wgmma_wait<0>();
            fence_operand(acc);
            fence_operand(p);
            release(s.v_empty, step);
            pack_operand(p, score);
        }
        start_output(step);
        wgmma_wait<0>();
        fence_operand(acc);
        release(s.v_empty, step);
        ++step;

        const float inverse[2] = {reciprocal(quad_sum(softmax.sum[0])),
                                  reciprocal(quad_sum(softmax.sum[1]))};
        const int own_row = rematerialized(warp_row);
        const int batch = work.head / heads_per_sequence;
        const int head = work.head - batch * heads_per_sequence;
        const size_t out_row = static_cast<size_t>(batch) * seq_len + work.first_row + own_row;
        store_rows(out + (out_row * heads_per_sequence + head) * kHeadDim,
                   heads_per_sequence * kHeadDim, seq_len - work.first_row - own_row,
                   s.q[q_stage][0], kRows, own_row, acc, inverse);
        __syncwarp();
        async_proxy_fence();
        if (lane == 0) barrier_arrive(&s.q_empty[q_stage]);
    }
}
