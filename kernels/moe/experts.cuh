// Grouped GEMM of all experts. A tile is 256 rows of an expert's weights by up to 128 of its
// tokens. Weights are operand A of wgmma and tokens operand B, so N can follow the number of
// tokens, rounded up to kTokenMultiple. One producer warpgroup, two consumer warpgroups.
// A row (of h and of the output) is one slot, in the order sorted by expert.
// CLUSTER=2: two blocks share the weights. Each loads one half for both, and has its own tokens.
// GROUP: tiles of tokens that run next to each other before the next weights; 0: all of an expert.
// TANH: SiLU with one tanh.approx (11 bits) instead of ex2.approx and rcp.approx (22 bits).
#pragma once
#include "element.cuh"
#include "hopper.cuh"

constexpr int kStages = STAGES;
constexpr int kThreads = 384;
constexpr int kClusterBlocks = CLUSTER;
constexpr int kMaxTokens = 128;        // of a tile
constexpr int kTokenMultiple = GRAIN;  // the width of a tile is a multiple of it
// Stages of gathered tokens in flight before the producer waits for the oldest and announces it; 0:
// cp.async arrives at the barrier itself.
constexpr int kGatherLag = LAG;
constexpr int kGatherArrivals = kGatherLag ? 4 : 128;
constexpr int kPending = PENDING;  // wgmma groups left in flight after each stage
constexpr int kBoxTokens = 32;     // tokens loaded by one TMA box
constexpr int kMaxExperts = 256;
constexpr int kWeightHalfBytes = 128 * 128, kTokenTileBytes = kMaxTokens * 128;  // 64 bf16 columns

struct SharedStorage {
    unsigned char weights[kStages][2][kWeightHalfBytes], tokens[kStages][kTokenTileBytes];
    unsigned char out[2][kMaxTokens * 128];  // per warpgroup: 64 features of each token
    Barrier full[kStages], empty[kStages];
    int first_row[kMaxExperts + 1];
    unsigned short tiles_before[kMaxExperts + 1];  // token tiles (per cluster) of earlier experts
};
// Consumers free a stage after issuing the next, so two stages must fit besides those in flight.
static_assert(kGatherLag + 2 <= kStages, "the producer would wait for itself");
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

__device__ __forceinline__ float gate_activation(float x) {
#if TANH
    float tangent;
    asm("tanh.approx.f32 %0, %1;" : "=f"(tangent) : "f"(0.5f * x));
    return fmaf(0.5f * x, tangent, 0.5f * x);
#else
    return silu(x);
#endif
}

// Position in the pipeline of stages, and the parity of its mbarrier phase.
struct PipelineState {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// A block's tile: ``count`` rows from ``first_row`` on, computed with N = ``width``. ``last_row``
// is the expert's last row.
struct Tile {
    int expert, weight_tile, first_row, count, width, last_row;
};

// Tiles are numbered expert by expert, tokens fastest. ``expert`` is the expert of an earlier tile.
__device__ __forceinline__ Tile find_tile(const SharedStorage& s, int number, int weight_tiles,
                                          int expert, int cluster_block) {
    while (number >= s.tiles_before[expert + 1] * weight_tiles) ++expert;
    const int token_tiles = s.tiles_before[expert + 1] - s.tiles_before[expert];
    const int expert_tile = number - s.tiles_before[expert] * weight_tiles;
    const int count = s.first_row[expert + 1] - s.first_row[expert];
    const int block_tiles = token_tiles * kClusterBlocks;
    const int tile_tokens = (count + block_tiles - 1) / block_tiles;
    const int width = (tile_tokens + kTokenMultiple - 1) / kTokenMultiple * kTokenMultiple;
    Tile tile;
    tile.expert = expert;
#if GROUP
    const int group_start = expert_tile / (GROUP * weight_tiles) * GROUP;
    const int group_size = min(GROUP, token_tiles - group_start);
    const int group_tile = expert_tile - group_start * weight_tiles;
#else
    const int group_start = 0, group_size = token_tiles, group_tile = expert_tile;
#endif
    tile.weight_tile = group_tile / group_size;
    const int token_tile = group_start + group_tile - tile.weight_tile * group_size;
    const int from = (token_tile * kClusterBlocks + cluster_block) * width;
    tile.first_row = s.first_row[expert] + from;
    tile.count = max(0, min(width, count - from));
    tile.width = max(1, (tile.count + kTokenMultiple - 1) / kTokenMultiple) * kTokenMultiple;
    tile.last_row = s.first_row[expert + 1] - 1;
    return tile;
}

// Called by every consumer warp: frees a stage in all blocks of the cluster.
__device__ __forceinline__ void release_stage(Barrier* barrier, int lane) {
    if (kClusterBlocks == 1) {
        if (lane == 0) barrier_arrive(barrier);
    } else if (lane < kClusterBlocks) {
        barrier_arrive_remote(barrier, lane);
    }
}

// Loads this block's half of a stage's weights into all blocks of the cluster.
__device__ __forceinline__ void load_weights(unsigned char (&to)[2][kWeightHalfBytes],
                                             const TensorMap& map, int column, int row, int part,
                                             int expert, int cluster_block, Barrier* barrier) {
    if (kClusterBlocks == 1)
        tma_load(to, map, column, row, part, expert, barrier);
    else
        tma_load_multicast(to[cluster_block], map, column, row, part + cluster_block, expert,
                           barrier, 3);
}

template <int kN>
__device__ __forceinline__ void multiply(float (&a)[64], float (&b)[64], SharedStorage& s,
                                         PipelineState& pipeline, int steps, int group, int lane) {
    int previous = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        barrier_wait(&s.full[pipeline.stage], pipeline.parity);
        const unsigned weights = descriptor(s.weights[pipeline.stage][0]) + group * (64 * 128 >> 4);
        const unsigned tokens = descriptor(s.tokens[pipeline.stage]);
        if (kGatherLag == 0) async_proxy_fence();
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            Wgmma<kN>::run(a, weights + 2 * i, tokens + 2 * i, step + i);
            Wgmma<kN>::run(b, weights + (kWeightHalfBytes >> 4) + 2 * i, tokens + 2 * i, step + i);
        }
        wgmma_commit();
        wgmma_wait<kPending>();
        if (kPending == 0)
            release_stage(&s.empty[pipeline.stage], lane);
        else if (step > 0)
            release_stage(&s.empty[previous], lane);
        previous = pipeline.stage;
        pipeline.advance();
    }
    wgmma_wait<0>();
    fence_operand(a);
    fence_operand(b);
    if (kPending) release_stage(&s.empty[previous], lane);
}

// Stores 64 features (from ``column`` on) of the tile's tokens, through swizzled shared memory.
__device__ __forceinline__ void store_output(const float (&d)[64], unsigned char* buffer,
                                             const Tile& tile, unsigned short* out, int columns,
                                             int column, int group) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const unsigned to = shared_address(buffer) + (lane / 16 * 8 + lane % 8) * 128 +
                        ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
    named_barrier_sync(1 + group, 128);  // all threads have read the previous contents
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (16 * i < tile.width)
            stmatrix_transposed(to + i * (16 * 128), pack(d[8 * i], d[8 * i + 1]),
                             pack(d[8 * i + 2], d[8 * i + 3]), pack(d[8 * i + 4], d[8 * i + 5]),
                             pack(d[8 * i + 6], d[8 * i + 7]));
    }
    named_barrier_sync(1 + group, 128);
    const int chunk = thread % 8, row = thread / 8;
    const unsigned char* from = buffer + row * 128 + (chunk ^ row % 8) * 16;
    unsigned short* out_chunk =
        out + static_cast<size_t>(tile.first_row + row) * columns + column + 8 * chunk;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (16 * i + row < tile.count)
            *reinterpret_cast<Chunk*>(out_chunk + static_cast<size_t>(16 * i) * columns) =
                *reinterpret_cast<const Chunk*>(from + i * (16 * 128));
    }
}

// Initialises the barriers and, per expert, first_row and tiles_before (an exclusive prefix sum).
__device__ __forceinline__ void init_shared_storage(SharedStorage& s, const int* first_row,
                                                    int experts) {
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            barrier_init(&s.full[stage], 1 + kGatherArrivals);
            barrier_init(&s.empty[stage], 8 * kClusterBlocks);
        }
        barrier_init_fence();
    }
    for (int i = threadIdx.x; i <= experts; i += kThreads) s.first_row[i] = first_row[i];
    __syncthreads();
    if (threadIdx.x < 32) {
        int before = 0;
        for (int base = 0; base < experts; base += 32) {
            const int expert = base + lane;
            const int count = expert < experts ? s.first_row[expert + 1] - s.first_row[expert] : 0;
            const int tiles =
                (count + kClusterBlocks * kMaxTokens - 1) / (kClusterBlocks * kMaxTokens);
            int sum = tiles;
            for (int step = 1; step < 32; step *= 2) {
                const int lower = __shfl_up_sync(~0u, sum, step);
                if (lane >= step) sum += lower;
            }
            if (expert < experts) s.tiles_before[expert] = before + sum - tiles;
            before += __shfl_sync(~0u, sum, 31);
        }
        if (lane == 0) s.tiles_before[experts] = before;
    }
    __syncthreads();
    if (kClusterBlocks > 1) cluster_sync();
}

// The tiles of a block: every ``stride``-th from ``start`` to ``end``, ``steps`` stages per tile.
struct TileSchedule {
    int start, stride, end, weight_tiles, steps, block;  // block: rank in the cluster
};

// Producer of the gate/up projection. weights: [experts][2][rows][64 steps], a tile has 128 rows of
// gate and the same 128 of up; x: [tokens][64 steps]; token_of: [rows]. TMA loads the weights. All
// threads gather tokens with 16-byte cp.async copies.
__device__ __forceinline__ void load_gathered(SharedStorage& s, PipelineState& pipeline,
                                              const TensorMap& weights, const unsigned short* x,
                                              const int* token_of, const TileSchedule& schedule) {
    const int thread = threadIdx.x % 128, lane = thread % 32, chunk = thread % 8, row = thread / 8;
    const int to = row * 128 + (chunk ^ row % 8) * 16;
    PipelineState oldest = pipeline;  // the oldest stage not yet announced
    int in_flight = 0, expert = 0;
    int next_token[8];  // of rows row + 16 i of the next tile
    auto prefetch_tokens = [&](int number) {
        if (number >= schedule.end) return;
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, schedule.block);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            next_token[i] = __ldg(token_of + min(tile.first_row + row + 16 * i, tile.last_row));
    };
    auto announce_oldest = [&]() {
        async_proxy_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.full[oldest.stage]);
        oldest.advance();
    };
    prefetch_tokens(schedule.start);
    for (int number = schedule.start; number < schedule.end; number += schedule.stride) {
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, schedule.block);
        expert = tile.expert;
        const unsigned short* from[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
            from[i] = x + static_cast<size_t>(next_token[i]) * (schedule.steps * 64) + chunk * 8;
        prefetch_tokens(number + schedule.stride);
#pragma unroll 1
        for (int step = 0; step < schedule.steps; ++step) {
            barrier_wait(&s.empty[pipeline.stage], pipeline.parity ^ 1);
            if (thread == 0) {
                barrier_expect(&s.full[pipeline.stage], 2 * kWeightHalfBytes);
                load_weights(s.weights[pipeline.stage], weights, step * 64, tile.weight_tile * 128,
                             0, tile.expert, schedule.block, &s.full[pipeline.stage]);
            }
            const unsigned tokens = shared_address(s.tokens[pipeline.stage]) + to;
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (16 * i < tile.width) cp_async(tokens + i * (16 * 128), from[i] + step * 64);
            if (kGatherLag == 0) {
                cp_async_arrive(&s.full[pipeline.stage]);
                pipeline.advance();
                continue;
            }
            cp_async_commit();
            pipeline.advance();
            if (in_flight == kGatherLag) {
                cp_async_wait<kGatherLag>();
                announce_oldest();
            } else {
                ++in_flight;
            }
        }
    }
    cp_async_wait<0>();
    for (; in_flight > 0; --in_flight) announce_oldest();
}

// Producer of the down projection, one thread. weights: [experts][columns / 128][128][64 steps], a
// tile has 256 rows of weights; h: [rows][64 steps]. If ``done`` is given, first waits until h of
// the expert is stored: done[expert] then is ``tile_arrivals`` times its number of token tiles.
__device__ __forceinline__ void load_rows(SharedStorage& s, PipelineState& pipeline,
                                          const TensorMap& weights, const TensorMap& h,
                                          const TileSchedule& schedule,
                                          const int* done = nullptr, int tile_arrivals = 0) {
    int expert = 0, ready = -1;
    for (int number = schedule.start; number < schedule.end; number += schedule.stride) {
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, schedule.block);
        expert = tile.expert;
        if (done && ready != expert) {
            wait_for_counter(done + expert, tile_arrivals * (s.tiles_before[expert + 1] -
                                                             s.tiles_before[expert]));
            async_proxy_fence_all();
            ready = expert;
        }
        const int boxes = (tile.width + kBoxTokens - 1) / kBoxTokens;
        for (int step = 0; step < schedule.steps; ++step) {
            barrier_wait(&s.empty[pipeline.stage], pipeline.parity ^ 1);
            barrier_arrive(&s.full[pipeline.stage], kGatherArrivals);  // there is no gather here
            barrier_expect(&s.full[pipeline.stage],
                           2 * kWeightHalfBytes + boxes * kBoxTokens * 128);
            load_weights(s.weights[pipeline.stage], weights, step * 64, 0, 2 * tile.weight_tile,
                         tile.expert, schedule.block, &s.full[pipeline.stage]);
            for (int box = 0; box < boxes; ++box)
                tma_load(s.tokens[pipeline.stage] + box * kBoxTokens * 128, h, step * 64,
                         tile.first_row + box * kBoxTokens, &s.full[pipeline.stage]);
            pipeline.advance();
        }
    }
}

// Consumer: computes the tiles and stores out [rows][columns]: silu(x gate^T) * (x up^T) if
// kActivates, else h down^T. ``group`` is the consumer warpgroup.
template <bool kActivates>
__device__ __forceinline__ void multiply_tiles(SharedStorage& s, PipelineState& pipeline,
                                               unsigned short* out, int columns,
                                               const TileSchedule& schedule, int group,
                                               int* done = nullptr) {
    const int lane = threadIdx.x % 32;
    int expert = 0;
    for (int number = schedule.start; number < schedule.end; number += schedule.stride) {
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, schedule.block);
        expert = tile.expert;
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, pipeline, schedule.steps, group, lane); break;
#if GRAIN == 16
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
#endif
            default: multiply<kMaxTokens>(a, b, s, pipeline, schedule.steps, group, lane);
#undef CASE
        }
        if (kActivates) {
            float h[64];
#pragma unroll
            for (int i = 0; i < 64; ++i) h[i] = gate_activation(a[i]) * b[i];
            store_output(h, s.out[group], tile, out, columns, tile.weight_tile * 128 + group * 64,
                         group);
            if (done) {
                async_proxy_fence_all();
                named_barrier_sync(1 + group, 128);
                if (threadIdx.x % 128 == 0) increment_counter(done + tile.expert);
            }
        } else {
            const int column = tile.weight_tile * 256 + group * 64;
            store_output(a, s.out[group], tile, out, columns, column, group);
            if (column + 128 < columns)
                store_output(b, s.out[group], tile, out, columns, column + 128, group);
        }
    }
}
