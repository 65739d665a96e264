// As fix20.cu, with the combine in the second product: outputs are weighted in registers, and bulk
// reductions (cp.reduce.async.bulk) add them to their tokens' sums in L2, 64 columns at a time. The
// order of additions varies, so results may differ from run to run.
#include "experts.cuh"

// The output buffer of a warpgroup holds 64 sums each for a batch of tokens, padded against bank
// conflicts, followed by the weights of all tokens of the tile.
constexpr int kSumPitch = 64 * 4 + 16;
constexpr int kBatchTokens = kMaxTokens * 128 / kSumPitch / 8 * 8;
static_assert(kBatchTokens * kSumPitch + kMaxTokens * 4 <= kMaxTokens * 128);

struct TileStorage : SharedStorage {
    int number[kStages];  // of the tile that begins in a stage; -1: none left
};
static_assert(sizeof(TileStorage) + 1023 <= SHARED_BYTES);

// Adds fp32 values from shared to global memory; ``bytes`` is a multiple of 16.
__device__ __forceinline__ void bulk_reduce_add(float* to, const void* from, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                 ::"l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until the thread's reductions have read shared memory, or are complete.
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Loads tiles of the second product, claimed from a counter, once all of their h has been written.
__device__ __forceinline__ void load_claimed_tiles(TileStorage& s, PipelineState& pipeline,
                                                   const TensorMap& weights, const TensorMap& h,
                                                   const TileSchedule& schedule, int* next_tile,
                                                   const int* done, int writes_per_tile) {
    int expert = 0, ready = -1;
    auto load_tile = [&](int number) {
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, 0);
        expert = tile.expert;
        if (ready != expert) {
            const int token_tiles = s.tiles_before[expert + 1] - s.tiles_before[expert];
            wait_for_counter(done + expert, writes_per_tile * token_tiles);
            async_proxy_fence_all();
            ready = expert;
        }
        const int boxes = (tile.width + kBoxTokens - 1) / kBoxTokens;
        for (int step = 0; step < schedule.steps; ++step) {
            Barrier* full = &s.full[pipeline.stage];
            barrier_wait(&s.empty[pipeline.stage], pipeline.parity ^ 1);
            if (step == 0) s.number[pipeline.stage] = number;
            barrier_arrive(full, kGatherArrivals);  // for the gathering threads
            barrier_expect(full, 2 * kWeightHalfBytes + boxes * kBoxTokens * 128);
            load_weights(s.weights[pipeline.stage], weights, step * 64, 0, 2 * tile.weight_tile,
                         tile.expert, 0, full);
            for (int box = 0; box < boxes; ++box)
                tma_load(s.tokens[pipeline.stage] + box * kBoxTokens * 128, h, step * 64,
                         tile.first_row + box * kBoxTokens, full);
            pipeline.advance();
        }
    };
    for (int number, next = atomicAdd(next_tile, 1); (number = next) < schedule.end;) {
        next = atomicAdd(next_tile, 1);
        load_tile(number);
    }
    barrier_wait(&s.empty[pipeline.stage], pipeline.parity ^ 1);
    s.number[pipeline.stage] = -1;
    barrier_arrive(&s.full[pipeline.stage], 1 + kGatherArrivals);
}

// Weights 64 features of the tile's tokens and adds them to sums: [tokens][columns], from
// ``column`` on. Thread i passes the ``token`` of the tile's row i.
__device__ __forceinline__ void add_to_sums(const float (&d)[64], unsigned char* stage,
                                            const Tile& tile, int token, float* sums, int columns,
                                            int column, int group) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const float* weights = reinterpret_cast<const float*>(stage + kBatchTokens * kSumPitch);
    float* to = reinterpret_cast<float*>(stage + 2 * (lane % 4) * kSumPitch) + 16 * warp + lane / 4;
#pragma unroll
    for (int base = 0; base < kMaxTokens; base += kBatchTokens) {
        if (base >= tile.width) break;
        bulk_wait_read();
        named_barrier_sync(1 + group, 128);  // the last batch has been read
#pragma unroll
        for (int i = 0; i < kBatchTokens / 8; ++i) {
            const int n = base / 8 + i;
            if (n >= kMaxTokens / 8 || 8 * n >= tile.width) break;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float weight = weights[8 * n + 2 * (lane % 4) + j];
                float* at = to + (8 * i + j) * (kSumPitch / 4);
                at[0] = weight * d[4 * n + j];
                at[8] = weight * d[4 * n + 2 + j];
            }
        }
        async_proxy_fence();
        named_barrier_sync(1 + group, 128);
        const int local = thread - base;
        if (local >= 0 && local < kBatchTokens && thread < tile.count)
            bulk_reduce_add(sums + static_cast<size_t>(token) * columns + column,
                            stage + local * kSumPitch, 64 * 4);
        bulk_commit();
    }
}

__device__ __forceinline__ void multiply_and_add(TileStorage& s, PipelineState& pipeline,
                                                 float* sums, int columns,
                                                 const TileSchedule& schedule, int group,
                                                 const int* token, const int* ids,
                                                 const float* weights, int topk,
                                                 const int* cleared_blocks) {
    unsigned char* stage = s.out[group];
    float* token_weights = reinterpret_cast<float*>(stage + kBatchTokens * kSumPitch);
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    int expert = 0;
    bool sums_cleared = false;
    while (true) {
        barrier_wait(&s.full[pipeline.stage], pipeline.parity);
        const int number = s.number[pipeline.stage];
        if (number < 0) break;
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, 0);
        expert = tile.expert;
        int own_token = 0;
        float weight = 0.0f;
        if (thread < tile.count) {
            own_token = __ldg(token + tile.first_row + thread);
            for (int i = 0; i < topk; ++i)
                if (__ldg(ids + own_token * topk + i) == expert)
                    weight = __ldg(weights + own_token * topk + i);
        }
        named_barrier_sync(1 + group, 128);  // the last tile's weights have been read
        token_weights[thread] = weight;
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, pipeline, schedule.steps, group, lane); break;
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
            default: multiply<kMaxTokens>(a, b, s, pipeline, schedule.steps, group, lane);
#undef CASE
        }
        if (!sums_cleared) {
            wait_for_counter(cleared_blocks, gridDim.x);
            async_proxy_fence_all();
            sums_cleared = true;
        }
        const int column = tile.weight_tile * 256 + group * 64;
        add_to_sums(a, stage, tile, own_token, sums, columns, column, group);
        if (column + 128 < columns)
            add_to_sums(b, stage, tile, own_token, sums, columns, column + 128, group);
    }
    bulk_wait();
}

// Clears the block's part of the sums, with the two consumer warpgroups.
__device__ __forceinline__ void clear_sums(float4* sums, int count, int* cleared_blocks) {
    const int begin = static_cast<long long>(blockIdx.x) * count / gridDim.x;
    const int end = static_cast<long long>(blockIdx.x + 1) * count / gridDim.x;
    for (int i = begin + threadIdx.x; i < end; i += 256) sums[i] = {};
    async_proxy_fence_all();
    named_barrier_sync(3, 256);
    if (threadIdx.x == 0) increment_counter(cleared_blocks);
}

// token, first_row: slots sorted by dispatch.cu; ids, weights: [tokens][topk]; sums:
// [tokens][hidden]; done: [experts + 2], zero: writes of h per expert, then the claimed tiles
// of the second product, then blocks that have cleared their part of sums.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
products(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
         const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
         const int* __restrict__ token, const int* __restrict__ first_row, int* done,
         unsigned short* h, const int* __restrict__ ids, const float* __restrict__ weights,
         float* sums, int tokens, int experts, int topk, int hidden, int intermediate) {
    extern __shared__ unsigned char raw[];
    TileStorage& s = *reinterpret_cast<TileStorage*>(raw + (-shared_address(raw) & 1023));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    init_shared_storage(s, first_row, experts);
    TileSchedule up_schedule, down_schedule;
    up_schedule.weight_tiles = intermediate / 128;
    up_schedule.start = blockIdx.x;
    up_schedule.end = s.tiles_before[experts] * up_schedule.weight_tiles;
    up_schedule.steps = hidden / 64;
    up_schedule.stride = gridDim.x;
    down_schedule.weight_tiles = (hidden + 255) / 256;
    down_schedule.end = s.tiles_before[experts] * down_schedule.weight_tiles;
    down_schedule.steps = intermediate / 64;
    up_schedule.block = 0;
    PipelineState pipeline;
    if (group == 2) {
        decrease_registers<88>();
        load_gathered(s, pipeline, up, x, token, up_schedule);
        if (threadIdx.x == 256)
            load_claimed_tiles(s, pipeline, down, h_map, down_schedule, done + experts, done,
                               2 * up_schedule.weight_tiles);
        return;
    }
    increase_registers<208>();
    clear_sums(reinterpret_cast<float4*>(sums), tokens * hidden / 4, done + experts + 1);
    multiply_tiles<true>(s, pipeline, h, intermediate, up_schedule, group, done);
    multiply_and_add(s, pipeline, sums, hidden, down_schedule, group, token, ids, weights, topk,
                     done + experts + 1);
}
