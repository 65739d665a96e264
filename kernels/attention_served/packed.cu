// As lengths.cu, but for few queries: PACK query heads of the same key head share a tile of rows.
// Each tile of keys is loaded once for all of them.
#include "served.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif

constexpr int kGroups = GROUPS;          // consumer warpgroups
constexpr int kRows = 64 * kGroups;      // query rows per tile
constexpr int kHeadRows = kRows / PACK;  // rows of each head in a tile
static_assert(kHeadRows % 16 == 0, "the rows of a warp must belong to one head");
constexpr int kGroupQueries = kHeadRows < 64 ? kHeadRows : 64;  // queries per warpgroup
constexpr int kTile = TILE;              // keys per tile
constexpr int kStages = STAGES;          // K and V tiles in the ring buffer
constexpr int kQStages = 2;              // Q tiles in the ring buffer

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
    const int row_offset = rematerialized(threadIdx.x % 16 * 128);
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) score[i] = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < kHeadDim / 8; ++chunk) {
        // swizzled(threadIdx.x % 16, chunk % 8). ``row`` and ``key`` are multiples of 8, so both
        // rows have the same swizzle.
        const int offset = row_offset + ((row_offset >> 7 ^ chunk) & 7) * 16;
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
    int first_row, pack, key_tiles;
};

// The tiles of all packs of PACK heads are ordered by sections of ``packs_in_l2`` packs, whose K
// and V fit into L2 together. Under a causal mask, the rows of a section with the most keys come
// first.
__device__ __forceinline__ WorkTile work_tile_at(int index, int row_tiles, int packs,
                                                 int packs_in_l2, int key_count,
                                                 int causal_offset) {
    const int first_pack = index / (packs_in_l2 * row_tiles) * packs_in_l2;
    const int section_index = index - first_pack * row_tiles;
    const int section_packs = min(packs_in_l2, packs - first_pack);
    const int row_tile =
        CAUSAL ? row_tiles - 1 - section_index / section_packs : section_index % row_tiles;
    WorkTile work;
    work.pack =
        first_pack + (CAUSAL ? section_index % section_packs : section_index / row_tiles);
    work.first_row = row_tile * kHeadRows;
    const int key_end =
        CAUSAL ? min(key_count, work.first_row + kHeadRows + causal_offset) : key_count;
    work.key_tiles = (key_end + kTile - 1) / kTile;
    return work;
}

// packs: of all sequences. group_size: query heads per key head.
// to_log2: softmax scale times log2(e).
extern "C" __global__ void __launch_bounds__(128 * (kGroups + 1), 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out,
                  int query_count, int key_count, int packs, int packs_per_sequence,
                  int group_size, int packs_in_l2, float to_log2) {
    extern __shared__ char raw[];
    SharedStorage& s =
        *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32;
    const int row_tiles = (query_count + kHeadRows - 1) / kHeadRows;
    const int work_tiles = row_tiles * packs;
    const int causal_offset = CAUSAL ? key_count - query_count : 0;

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
            const WorkTile work = work_tile_at(work_index, row_tiles, packs, packs_in_l2,
                                               key_count, causal_offset);
            const int batch = work.pack / packs_per_sequence;
            const int head = (work.pack - batch * packs_per_sequence) * PACK;
            const int key_head = head / group_size;
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
                    tma_load(s.k[stage][panel], k_map, panel * 64, tile * kTile, key_head, batch,
                             &s.k_full[stage]);
                barrier_wait(&s.v_empty[stage], parity);
                barrier_expect(&s.v_full[stage], sizeof(s.v[0]));
                for (int panel = 0; panel < kPanels; ++panel)
                    tma_load(s.v[stage][panel], v_map, panel * 64, tile * kTile, key_head, batch,
                             &s.v_full[stage]);
            }
            work_index = (round + 1) * gridDim.x
                + (round & 1 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
        }
        return;
    }

    increase_registers<kGroups == 2 ? 240 : kGroups == 3 ? 160 : 112>();
    const int warp_row = warp * 16;
    int step = 0;  // tiles of keys so far: the position in the ring buffer
    for (int round = 0;; ++round) {
        const int q_stage = round % kQStages;
        barrier_wait(&s.q_full[q_stage], round / kQStages & 1);
        if (s.work_index[q_stage] >= work_tiles) break;
        const WorkTile work = work_tile_at(s.work_index[q_stage], row_tiles, packs, packs_in_l2,
                                           key_count, causal_offset);
        // The last keys that row g and the warpgroup's first query see.
        const int last_key = work.first_row + warp_row % kHeadRows + lane / 4 + causal_offset;
        const int group_last_key = work.first_row + group * 64 % kHeadRows + causal_offset;
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
                mask_keys(score, first_key, rematerialized(last_key), key_count);
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
            for (; tile * kTile > group_last_key + kGroupQueries - 1; --tile, ++step) {
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
        mask_keys(score, tile * kTile, last_key, key_count);
        softmax.update_reference(score);
        softmax.exponentiate(score);
        pack_operand(p, score);
        // The mask may hide all keys of the first tile from a row, which then has no reference. So
        // the second tile updates the references before its exponentials.
        if (CAUSAL && tile * kTile > group_last_key) {
            --tile;
            start_scores(step + 1);
            start_output(step);
            wgmma_wait<0>();
            fence_operand(score);
            fence_operand(acc);
            fence_operand(p);
            release(s.k_empty, step + 1);
            release(s.v_empty, step);
            mask_keys(score, tile * kTile, last_key, key_count);
            if (softmax.update_reference(score)) scale_rows(acc, softmax.rescale);
            softmax.exponentiate(score);
            pack_operand(p, score);
            ++step;
        }
#pragma unroll 1
        for (; tile > 0; ++step) {
            --tile;
            start_scores(step + 1);
            start_output(step);
            wgmma_wait<1>();
            fence_operand(score);
            mask_keys(score, tile * kTile, last_key, key_count);
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
        // Computed again, because no registers are left to keep it.
        const WorkTile finished = work_tile_at(s.work_index[q_stage], row_tiles, packs, packs_in_l2,
                                               key_count, causal_offset);
        const int batch = finished.pack / packs_per_sequence;
        const int query = finished.first_row + own_row % kHeadRows;
        const size_t out_row =
            (static_cast<size_t>(batch) * query_count + query) * packs_per_sequence * PACK
            + (finished.pack - batch * packs_per_sequence) * PACK + own_row / kHeadRows;
        store_rows(out + out_row * kHeadDim, packs_per_sequence * PACK * kHeadDim,
                   query_count - query, s.q[q_stage][0], kRows, own_row, acc, inverse);
        __syncwarp();
        async_proxy_fence();
        if (lane == 0) barrier_arrive(&s.q_empty[q_stage]);
    }
}
