// As fix6.cu, but one persistent kernel computes both projections: a block without gate/up tiles
// goes on to the down projection. It waits for an expert's h with a counter in global memory.
#include "experts.cuh"

// done: [experts], zeros: warpgroups that have stored their tile of h. rows: [slots][hidden].
extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(kThreads, 1)
products(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
         const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
         const int* __restrict__ token_of, const int* __restrict__ first_row, int* done,
         unsigned short* h, unsigned short* __restrict__ rows, int experts, int hidden,
         int intermediate) {
    extern __shared__ unsigned char raw[];
    SharedStorage& s = *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    init_shared_storage(s, first_row, experts);
    const int start = blockIdx.x / kClusterBlocks, stride = gridDim.x / kClusterBlocks;
    TileSchedule up_schedule, down_schedule;
    up_schedule.weight_tiles = intermediate / 128;
    up_schedule.start = start;
    up_schedule.end = s.tiles_before[experts] * up_schedule.weight_tiles;
    up_schedule.steps = hidden / 64;
    down_schedule.weight_tiles = (hidden + 255) / 256;
    // The down projection continues the round-robin distribution of tiles.
    down_schedule.start = (start - up_schedule.end % stride + stride) % stride;
    down_schedule.end = s.tiles_before[experts] * down_schedule.weight_tiles;
    down_schedule.steps = intermediate / 64;
    up_schedule.stride = down_schedule.stride = stride;
    up_schedule.block = down_schedule.block = kClusterBlocks == 1 ? 0 : cluster_rank();
    PipelineState pipeline;
    if (group == 2) {
        decrease_registers<88>();
        load_gathered(s, pipeline, up, x, token_of, up_schedule);
        if (threadIdx.x == 256)
            load_rows(s, pipeline, down, h_map, down_schedule, done,
                      2 * kClusterBlocks * up_schedule.weight_tiles);
        return;
    }
    increase_registers<208>();
    multiply_tiles<true>(s, pipeline, h, intermediate, up_schedule, group, done);
    multiply_tiles<false>(s, pipeline, rows, hidden, down_schedule, group);
    if (kClusterBlocks > 1) cluster_sync();  // the other block may still arrive at our barriers
}
