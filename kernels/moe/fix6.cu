// One grouped GEMM of experts.cuh as a persistent kernel. GATHER=1: the gate/up projection with the
// activation, on gathered tokens; GATHER=0: the down projection.
#include "experts.cuh"

// first_row: [experts + 1]; token_of: [rows]; out: [rows][columns]. Rows: slots sorted by expert.
extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(kThreads, 1)
product(const __grid_constant__ TensorMap weights,
#if GATHER
        const unsigned short* __restrict__ x, const int* __restrict__ token_of,
#else
        const __grid_constant__ TensorMap h,
#endif
        const int* __restrict__ first_row, unsigned short* __restrict__ out, int experts, int steps,
        int columns) {
    extern __shared__ unsigned char raw[];
    SharedStorage& s = *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    init_shared_storage(s, first_row, experts);
    TileSchedule schedule;
    schedule.weight_tiles = GATHER ? columns / 128 : (columns + 255) / 256;
    schedule.start = blockIdx.x / kClusterBlocks;
    schedule.stride = gridDim.x / kClusterBlocks;
    schedule.end = s.tiles_before[experts] * schedule.weight_tiles;
    schedule.steps = steps;
    schedule.block = kClusterBlocks == 1 ? 0 : cluster_rank();
    PipelineState pipeline;
    if (group == 2) {
        decrease_registers<88>();
#if GATHER
        load_gathered(s, pipeline, weights, x, token_of, schedule);
#else
        if (threadIdx.x == 256) load_rows(s, pipeline, weights, h, schedule);
#endif
        return;
    }
    increase_registers<208>();
    multiply_tiles<GATHER == 1>(s, pipeline, out, columns, schedule, group);
    if (kClusterBlocks > 1) cluster_sync();  // the other block may still arrive at our barriers
}
