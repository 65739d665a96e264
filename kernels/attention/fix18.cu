// As fix14, with mbarriers named where they are released, so that their addresses are computed once
// for a warp, and a new reference as soon as a sum says that it was too low by much.
#include "attention.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif

constexpr int kGroups = GROUPS;      // warpgroups that compute
constexpr int kRows = 64 * kGroups;  // query rows of a tile
constexpr int kTile = TILE;          // keys of a tile
constexpr int kStages = STAGES;      // tiles of keys in shared memory
constexpr int kQueries = 2;          // tiles of queries

// The same number, but what follows from it is computed where it is used and not kept from one tile
// to the next: with four warpgroups there are no registers left for that.
__device__ __forceinline__ int made_anew(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

__device__ __forceinline__ float log2_fast(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

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

// The scores of a warp's 16 rows, from ``row`` of a tile of queries on, without the rest of its
// warpgroup: accumulators of mma.sync and wgmma are laid out alike. Rarely used, so it is meant to
// need few registers rather than to be fast.
__device__ __forceinline__ void warp_scores(float (&score)[kTile / 2], const Element* q,
                                            int q_rows, int row, const Element* k) {
    const int lane = threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) score[i] = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < kHeadDim / 8; ++chunk) {
        // Rows are a multiple of 16, so that one offset within a panel serves both.
        const int offset = swizzled(lane, chunk % 8);
        unsigned a[2], b;
        load_matrices(a, shared_address(q) + (chunk / 8 * q_rows + row) * 128 + offset);
#pragma unroll
        for (int key = 0; key < kTile; key += 8) {
            load_matrix(b, shared_address(k) + (chunk / 8 * kTile + key) * 128 + offset);
            mma(score + key / 2, a, b);
        }
    }
}

struct Shared {
    Element q[kQueries][kPanels][kRows * 64];
    Element k[kStages][kPanels][kTile * 64], v[kStages][kPanels][kTile * 64];
    int number[kQueries];
    Barrier q_full[kQueries], q_empty[kQueries];
    Barrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

// Sums of a tile's probabilities, of one thread, from here on call for a new reference. fp16 has
// room for 2^16. But where one key has nearly all of a row's weight, its probability against a
// reference of its own is 1, and rounded to nothing else.
constexpr float kTooLarge = LIMIT;

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

// counter: two zeros; zeros again afterwards. to_log2: log2(e) times the scale of the scores.
extern "C" __global__ void __launch_bounds__(128 * (kGroups + 1), 1)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out,
                  int* __restrict__ counter, int seq_len, int heads, int section,
                  float to_log2) {
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
    for (int round = 0;; ++round) {
        const int queries = round % kQueries;
        barrier_wait(&s.q_full[queries], round / kQueries & 1);
        if (s.number[queries] >= all) break;
        const Work work = work_of(s.number[queries], row_tiles, heads, section, seq_len);
        const int row = work.first_row + warp_row + lane / 4;
        const unsigned q_tile = descriptor(s.q[queries][0]) + group * (64 * 128 >> 4);
        float acc[kHeadDim / 2] = {}, score[kTile / 2];
        unsigned p[kTile / 16][4];
        Softmax softmax;
        softmax.to_log2 = to_log2;

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
        auto release_k = [&](int at) {
            if (lane == 0) barrier_arrive(&s.k_empty[at % kStages]);
        };
        auto release_v = [&](int at) {
            if (lane == 0) barrier_arrive(&s.v_empty[at % kStages]);
        };

        float sum[2];  // of this thread's probabilities of a tile
        auto exponentiate = [&]() {
            sum[0] = sum[1] = 0.0f;
#pragma unroll
            for (int i = 0; i < kTile / 2; ++i) {
                score[i] = exp2_fast(softmax.exponent(score[i], i));
                sum[i / 2 % 2] += score[i];
            }
        };
        // The same for a tile whose scores exceed the reference. Probabilities are made smaller as
        // they are, unless one is beyond fp32: then the scores are needed again.
        auto correct = [&](int at, int first_key) {
            wgmma_wait<0>();
            pin(acc);
            pin(p);
            float largest[2] = {1.0f, 1.0f};
#pragma unroll
            for (int i = 0; i < kTile / 2; ++i)
                largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], score[i]);
            largest[0] = quad_max(largest[0]);
            largest[1] = quad_max(largest[1]);
            if (__any_sync(~0u, largest[0] + largest[1] > 1e36f)) {
                warp_scores(score, s.q[queries][0], kRows, warp_row, s.k[at % kStages][0]);
                mask_keys(score, first_key, made_anew(row), seq_len);
                softmax.move_reference(score);
                exponentiate();
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    softmax.rescale[half] = reciprocal(largest[half]);
                    softmax.reference[half] +=
                        log2_fast(largest[half]) * reciprocal(softmax.to_log2);
                    softmax.sum[half] *= softmax.rescale[half];
                    sum[half] *= softmax.rescale[half];
                }
                multiply(score, softmax.rescale);
            }
            multiply(acc, softmax.rescale);
        };

        int tile = work.tiles - 1;
        if (CAUSAL) {  // tiles of keys after this warpgroup's last row
            for (; tile * kTile > work.first_row + group * 64 + 63; --tile, ++step) {
                barrier_wait(&s.k_full[step % kStages], step / kStages & 1);
                release_k(step);
                barrier_wait(&s.v_full[step % kStages], step / kStages & 1);
                release_v(step);
            }
        }
        start_scores(step);
        wgmma_wait<0>();
        pin(score);
        release_k(step);
        mask_keys(score, tile * kTile, row, seq_len);
        softmax.move_reference(score);
        softmax.exponentiate(score);
        pack_operand(p, score);
#pragma unroll 1
        for (; tile > 0; ++step) {
            --tile;
            start_scores(step + 1);
            start_output(step);
            wgmma_wait<1>();
            pin(score);
            mask_keys(score, tile * kTile, row, seq_len);
            exponentiate();
            if (__any_sync(~0u, !(fmaxf(sum[0], sum[1]) < kTooLarge)))
                correct(step + 1, tile * kTile);
            release_k(step + 1);
            softmax.sum[0] += sum[0];
            softmax.sum[1] += sum[1];
            wgmma_wait<0>();
            pin(acc);
            pin(p);
            release_v(step);
            pack_operand(p, score);
        }
        start_output(step);
        wgmma_wait<0>();
        pin(acc);
        release_v(step);
        ++step;

        const float inverse[2] = {reciprocal(quad_sum(softmax.sum[0])),
                                  reciprocal(quad_sum(softmax.sum[1]))};
        const int own_row = made_anew(warp_row);
        const size_t to = static_cast<size_t>(work.head) * seq_len + work.first_row + own_row;
        store_output(out + to * kHeadDim, seq_len - work.first_row - own_row, s.q[queries][0],
                     kRows, own_row, acc, inverse);
        __syncwarp();
        async_proxy_fence();
        if (lane == 0) barrier_arrive(&s.q_empty[queries]);
    }
}
