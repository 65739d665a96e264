// As fix10.cu, but the down projection's tiles are scheduled dynamically: a block claims its next
// tile from a counter in global memory.
#include "experts.cuh"

struct TileStorage : SharedStorage {
    int number[kStages];  // tile that starts in the stage; -1: end
};
static_assert(sizeof(TileStorage) + 1023 <= SHARED_BYTES);

__device__ __forceinline__ void load_claimed_tiles(TileStorage& s, PipelineState& pipeline,
                                                   const TensorMap& weights, const TensorMap& h,
                                                   const TileSchedule& schedule, int* next_tile,
                                                   const int* done, int arrivals_per_tile) {
    int expert = 0, h_ready_expert = -1;
    auto load_tile = [&](int number) {
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, 0);
        expert = tile.expert;
        if (h_ready_expert != expert) {
            const int tiles = s.tiles_before[expert + 1] - s.tiles_before[expert];
            wait_for_counter(done + expert, arrivals_per_tile * tiles);
            async_proxy_fence_all();
            h_ready_expert = expert;
        }
        const int boxes = (tile.width + kBoxTokens - 1) / kBoxTokens;
        for (int step = 0; step < schedule.steps; ++step) {
            Barrier* full = &s.full[pipeline.stage];
            barrier_wait(&s.empty[pipeline.stage], pipeline.parity ^ 1);
            if (step == 0) s.number[pipeline.stage] = number;
            barrier_arrive(full, kGatherArrivals);  // on behalf of the gathering threads
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

__device__ __forceinline__ void multiply_claimed_tiles(TileStorage& s, PipelineState& pipeline,
                                                       unsigned short* out, int columns,
                                                       const TileSchedule& schedule, int group) {
    const int lane = threadIdx.x % 32;
    int expert = 0;
    while (true) {
        barrier_wait(&s.full[pipeline.stage], pipeline.parity);
        const int number = s.number[pipeline.stage];
        if (number < 0) break;
        const Tile tile = find_tile(s, number, schedule.weight_tiles, expert, 0);
        expert = tile.expert;
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, pipeline, schedule.steps, group, lane); break;
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
            default: multiply<kMaxTokens>(a, b, s, pipeline, schedule.steps, group, lane);
#undef CASE
        }
        const int column = tile.weight_tile * 256 + group * 64;
        store_output(a, s.out[group], tile, out, columns, column, group);
        if (column + 128 < columns)
            store_output(b, s.out[group], tile, out, columns, column + 128, group);
    }
}

// done: [experts + 1], initially zero; the last one is the tile counter. rows: [slots][hidden].
extern "C" __global__ void __launch_bounds__(kThreads, 1)
products(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
         const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
         const int* __restrict__ token, const int* __restrict__ first, int* done,
         unsigned short* h, unsigned short* __restrict__ rows, int experts, int hidden,
         int intermediate) {
    extern __shared__ unsigned char raw[];
    TileStorage& s = *reinterpret_cast<TileStorage*>(raw + (-shared_address(raw) & 1023));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    init_shared_storage(s, first, experts);
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
    multiply_tiles<true>(s, pipeline, h, intermediate, up_schedule, group, done);
    multiply_claimed_tiles(s, pipeline, rows, hidden, down_schedule, group);
}
