// As fix9.cu, but persistent: each block takes tiles of query rows from a counter, those with the
// most keys first, and prefetches the next tile's queries. Parameters are the tile sizes, ping-pong
// scheduling of the consumer warpgroups, and exponentials by polynomials.
#include "attention.cuh"
#include "polynomial.cuh"

constexpr int kGroups = GROUPS;      // consumer warpgroups
constexpr int kRows = 64 * kGroups;  // query rows per tile
constexpr int kTile = TILE;          // keys per tile
constexpr int kStages = STAGES;      // K and V tiles in the ring buffer
constexpr int kQStages = 2;          // Q tiles in the ring buffer
// Every POLYNOMIAL-th group of four exponentials runs on the FMA units. 0: none.
constexpr int kPolynomial = POLYNOMIAL;

struct SharedStorage {
    Element q[kQStages][kPanels][kRows * 64];
    Element k[kStages][kPanels][kTile * 64], v[kStages][kPanels][kTile * 64];
    int work_index[kQStages];
    Barrier q_full[kQStages], q_empty[kQStages];
    Barrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

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

__device__ __forceinline__ bool uses_polynomial(int i) {
    return kPolynomial && i / 4 % kPolynomial == kPolynomial - 1;
}

// counter: tiles taken and blocks finished. Both are zero before and after a launch.
extern "C" __global__ void __launch_bounds__(128 * (kGroups + 1), 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out,
                  int* __restrict__ counter, int seq_len, int heads, int heads_in_l2, float scale) {
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
            barrier_expect(&s.q_full[q_stage], sizeof(s.q[0]));
            for (int panel = 0; panel < kPanels; ++panel)
                tma_load(s.q[q_stage][panel], q_map, panel * 64, work.first_row, work.head,
                         &s.q_full[q_stage]);
            for (int tile = work.key_tiles - 1; tile >= 0; --tile, ++step) {
                const int stage = step % kStages;
                const unsigned parity = step / kStages & 1 ^ 1;
                barrier_wait(&s.k_empty[stage], parity);
                barrier_expect(&s.k_full[stage], sizeof(s.k[0]));
                for (int panel = 0; panel < kPanels; ++panel)
                    tma_load(s.k[stage][panel], k_map, panel * 64, tile * kTile, work.head,
                             &s.k_full[stage]);
                barrier_wait(&s.v_empty[stage], parity);
                barrier_expect(&s.v_full[stage], sizeof(s.v[0]));
                for (int panel = 0; panel < kPanels; ++panel)
                    tma_load(s.v[stage][panel], v_map, panel * 64, tile * kTile, work.head,
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
    // Ping-pong: named barrier 1 + g lets warpgroup g issue its products.
    if (PINGPONG && group == 0) named_barrier_arrive(1, 256);
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
        Softmax softmax(scale);

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
        auto exponentiate = [&]() {
#pragma unroll
            for (int i = 0; i < kTile / 2; ++i) {
                score[i] = softmax.exponent(score[i], i);
                if (uses_polynomial(i)) continue;
                score[i] = exp2_fast(kPolynomial ? score[i] + kPairScaleLog2 : score[i]);
                softmax.sum[i / 2 % 2] += score[i];
            }
        };
        // The polynomials write to p directly, so they have to wait until the output product, which
        // reads p, is complete.
        auto pack_probabilities = [&]() {
            unsigned sums[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < kTile / 2; i += 2) {
                unsigned& pair = p[i / 8][i / 2 % 4];
                if (uses_polynomial(i)) {
                    pair = exp2_pair(score[i], score[i + 1]);
                    sums[i / 2 % 2] = add_pair(sums[i / 2 % 2], pair);
                } else {
                    pair = pack(score[i], score[i + 1]);
                }
            }
            if (kPolynomial) {
                softmax.sum[0] += pair_sum(sums[0]);
                softmax.sum[1] += pair_sum(sums[1]);
            }
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
        exponentiate();
        pack_probabilities();
#pragma unroll 1
        for (; tile > 0; ++step) {
            --tile;
            if (PINGPONG) named_barrier_sync(1 + group, 256);
            start_scores(step + 1);
            start_output(step);
            if (PINGPONG) named_barrier_arrive(2 - group, 256);
            wgmma_wait<1>();
            fence_operand(score);
            release(s.k_empty, step + 1);
            mask_keys(score, tile * kTile, row, seq_len);
            const bool raised = softmax.update_reference(score);
            exponentiate();
            wgmma_wait<0>();
            fence_operand(acc);
            fence_operand(p);
            release(s.v_empty, step);
            if (raised) scale_rows(acc, softmax.rescale);
            pack_probabilities();
        }
        start_output(step);
        wgmma_wait<0>();
        fence_operand(acc);
        release(s.v_empty, step);
        ++step;

        const float inverse[2] = {reciprocal(quad_sum(softmax.sum[0])),
                                  reciprocal(quad_sum(softmax.sum[1]))};
        const size_t out_row = static_cast<size_t>(work.head) * seq_len + work.first_row + warp_row;
        store_output(out + out_row * kHeadDim, seq_len - work.first_row - warp_row, s.q[q_stage][0],
                     kRows, warp_row, acc, inverse);
        __syncwarp();
        async_proxy_fence();
        if (lane == 0) barrier_arrive(&s.q_empty[q_stage]);
    }
}
