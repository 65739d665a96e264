// As fix9, with blocks that stay: each takes one tile of query rows after another, those with the
// most keys first, and has the next one's queries fetched while it works. The shape of the tiles is
// a parameter, and so are two things that were tried on top.
#include "attention.cuh"
#include "polynomial.cuh"

constexpr int kGroups = GROUPS;      // warpgroups that compute
constexpr int kRows = 64 * kGroups;  // query rows of a tile
constexpr int kTile = TILE;          // keys of a tile
constexpr int kStages = STAGES;      // tiles of keys in shared memory
constexpr int kQueries = 2;          // tiles of queries
// Every POLYNOMIAL-th fragment of exponentials is made on the FMA units; 0 for none.
constexpr int kPolynomial = POLYNOMIAL;

struct Shared {
    Element q[kQueries][kPanels][kRows * 64];
    Element k[kStages][kPanels][kTile * 64], v[kStages][kPanels][kTile * 64];
    int number[kQueries];
    Barrier q_full[kQueries], q_empty[kQueries];
    Barrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

struct Work {
    int first_row, head, tiles;
};

// Tile ``number`` of all heads. Heads go by sections whose K and V fit in L2 together; within one,
// under a causal mask, the rows with the most keys come first.
__device__ __forceinline__ Work work_of(int number, int row_tiles, int heads, int section,
                                        int seq_len) {
    const int first_head = number / (section * row_tiles) * section;
    const int within = number - first_head * row_tiles, size = min(section, heads - first_head);
    const int row_tile = CAUSAL ? row_tiles - 1 - within / size : within % row_tiles;
    Work work;
    work.head = first_head + (CAUSAL ? within % size : within / row_tiles);
    work.first_row = row_tile * kRows;
    work.tiles = ((CAUSAL ? min(seq_len, work.first_row + kRows) : seq_len) + kTile - 1) / kTile;
    return work;
}

__device__ __forceinline__ bool by_polynomial(int i) {
    return kPolynomial && i / 4 % kPolynomial == kPolynomial - 1;
}

// counter: two zeros; zeros again afterwards.
extern "C" __global__ void __launch_bounds__(128 * (kGroups + 1), 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out,
                  int* __restrict__ counter, int seq_len, int heads, int section, float scale) {
    extern __shared__ char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), group = warp / 4;
    const int lane = threadIdx.x % 32;
    const int row_tiles = (seq_len + kRows - 1) / kRows, all = row_tiles * heads;

    if (threadIdx.x == 0) {
        for (int i = 0; i < kQueries; ++i) {
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
        give_registers_down_to<kGroups == 3 ? 32 : 24>();
        if (warp != 4 * kGroups || lane != 0) return;
        prefetch(q_map);
        prefetch(k_map);
        prefetch(v_map);
        int number = blockIdx.x;
        for (int round = 0, step = 0;; ++round) {
            const int queries = round % kQueries;
            barrier_wait(&s.q_empty[queries], round / kQueries & 1 ^ 1);
            s.number[queries] = number;
            if (number >= all) {
                barrier_arrive(&s.q_full[queries]);
                break;
            }
            const Work work = work_of(number, row_tiles, heads, section, seq_len);
            barrier_expect(&s.q_full[queries], sizeof(s.q[0]));
            for (int panel = 0; panel < kPanels; ++panel)
                copy_box(s.q[queries][panel], q_map, panel * 64, work.first_row, work.head,
                         &s.q_full[queries]);
            for (int tile = work.tiles - 1; tile >= 0; --tile, ++step) {
                const int stage = step % kStages;
                const unsigned parity = step / kStages & 1 ^ 1;
                barrier_wait(&s.k_empty[stage], parity);
                barrier_expect(&s.k_full[stage], sizeof(s.k[0]));
                for (int panel = 0; panel < kPanels; ++panel)
                    copy_box(s.k[stage][panel], k_map, panel * 64, tile * kTile, work.head,
                             &s.k_full[stage]);
                barrier_wait(&s.v_empty[stage], parity);
                barrier_expect(&s.v_full[stage], sizeof(s.v[0]));
                for (int panel = 0; panel < kPanels; ++panel)
                    copy_box(s.v[stage][panel], v_map, panel * 64, tile * kTile, work.head,
                             &s.v_full[stage]);
            }
            number = gridDim.x + atomicAdd(counter, 1);
        }
        // The last block to find nothing left makes the counter ready for the next launch.
        if (atomicAdd(counter + 1, 1) == gridDim.x - 1) counter[0] = counter[1] = 0;
        return;
    }

    take_registers_up_to<kGroups == 2 ? 240 : kGroups == 3 ? 160 : 112>();
    const int warp_row = warp * 16;
    int step = 0;
    if (PINGPONG && group == 0) named_barrier_arrive(1, 256);
    for (int round = 0;; ++round) {
        const int queries = round % kQueries;
        barrier_wait(&s.q_full[queries], round / kQueries & 1);
        if (s.number[queries] >= all) break;
        const Work work = work_of(s.number[queries], row_tiles, heads, section, seq_len);
        const int row = work.first_row + warp_row + lane / 4;
        const unsigned q_tile = descriptor(s.q[queries][0]) + group * (64 * 128 >> 4);
        float acc[kHeadDim / 2] = {}, score[kTile / 2];
        unsigned p[kTile / 16][4];
        Softmax softmax(scale);

        auto start_scores = [&](int at) {
            const int stage = at % kStages;
            barrier_wait(&s.k_full[stage], at / kStages & 1);
            pin(score);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < kHeadDim / 16; ++i)
                wgmma(score, q_tile + i / 4 * (kRows * 128 >> 4) + i % 4 * 2,
                      descriptor(s.k[stage][i / 4]) + i % 4 * 2, i > 0);
            wgmma_commit();
        };
        auto start_output = [&](int at) {
            const int stage = at % kStages;
            barrier_wait(&s.v_full[stage], at / kStages & 1);
            pin(acc);
            pin(p);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < kTile / 16; ++i)
                wgmma(acc, p[i], descriptor(s.v[stage][0], kTile * 128) + i * 128, 1);
            wgmma_commit();
        };
        auto release = [&](Barrier* barriers, int at) {
            if (lane == 0) barrier_arrive(&barriers[at % kStages]);
        };
        auto exponentiate = [&]() {
#pragma unroll
            for (int i = 0; i < kTile / 2; ++i) {
                score[i] = softmax.exponent(score[i], i);
                if (by_polynomial(i)) continue;
                score[i] = exp2_fast(kPolynomial ? score[i] + kPairScaleLog2 : score[i]);
                softmax.sum[i / 2 % 2] += score[i];
            }
        };
        // The polynomials come here, and not with the other exponentials: while products run,
        // registers that wgmma reads must not be written.
        auto pack_probabilities = [&]() {
            unsigned sums[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < kTile / 2; i += 2) {
                unsigned& pair = p[i / 8][i / 2 % 4];
                if (by_polynomial(i)) {
                    pair = exp2_pair(score[i], score[i + 1]);
                    sums[i / 2 % 2] = add_pair(sums[i / 2 % 2], pair);
                } else {
                    pair = pack(score[i], score[i + 1]);
                }
            }
            if (kPolynomial) {
                softmax.sum[0] += total_of_pairs(sums[0]);
                softmax.sum[1] += total_of_pairs(sums[1]);
            }
        };

        int tile = work.tiles - 1;
        if (CAUSAL) {  // tiles of keys after this warpgroup's last row
            for (; tile * kTile > work.first_row + group * 64 + 63; --tile, ++step) {
                barrier_wait(&s.k_full[step % kStages], step / kStages & 1);
                release(s.k_empty, step);
                barrier_wait(&s.v_full[step % kStages], step / kStages & 1);
                release(s.v_empty, step);
            }
        }
        start_scores(step);
        wgmma_wait<0>();
        pin(score);
        release(s.k_empty, step);
        mask_keys(score, tile * kTile, row, seq_len);
        softmax.move_reference(score);
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
            pin(score);
            release(s.k_empty, step + 1);
            mask_keys(score, tile * kTile, row, seq_len);
            const bool moved = softmax.move_reference(score);
            exponentiate();
            wgmma_wait<0>();
            pin(acc);
            pin(p);
            release(s.v_empty, step);
            if (moved) multiply(acc, softmax.rescale);
            pack_probabilities();
        }
        start_output(step);
        wgmma_wait<0>();
        pin(acc);
        release(s.v_empty, step);
        ++step;

        const float inverse[2] = {reciprocal(quad_sum(softmax.sum[0])),
                                  reciprocal(quad_sum(softmax.sum[1]))};
        const size_t to = static_cast<size_t>(work.head) * seq_len + work.first_row + warp_row;
        store_output(out + to * kHeadDim, seq_len - work.first_row - warp_row, s.q[queries][0],
                     kRows, warp_row, acc, inverse);
        __syncwarp();
        async_proxy_fence();
        if (lane == 0) barrier_arrive(&s.q_empty[queries]);
    }
}
