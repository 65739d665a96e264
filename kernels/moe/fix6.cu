// One of the two products of experts.cuh. GATHER=1: h, from tokens where they stand; GATHER=0: rows of
// the output, from h.
#include "experts.cuh"

// first: [experts + 1], an expert's first place. out: [places][columns].
extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(kThreads, 1)
product(const __grid_constant__ TensorMap weights,
#if GATHER
        const unsigned short* __restrict__ x, const int* __restrict__ token,
#else
        const __grid_constant__ TensorMap h,
#endif
        const int* __restrict__ first, unsigned short* __restrict__ out, int experts, int steps,
        int columns) {
    extern __shared__ unsigned char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    set_up(s, first, experts);
    Share share;
    share.row_tiles = GATHER ? columns / 128 : (columns + 255) / 256;
    share.start = blockIdx.x / kBlocks;
    share.stride = gridDim.x / kBlocks;
    share.all = s.tiles[experts] * share.row_tiles;
    share.steps = steps;
    share.block = kBlocks == 1 ? 0 : block_of_cluster();
    Ring ring;
    if (group == 2) {
        give_registers_down_to<88>();
#if GATHER
        fetch_gathered(s, ring, weights, x, token, share);
#else
        if (threadIdx.x == 256) fetch_rows(s, ring, weights, h, share);
#endif
        return;
    }
    take_registers_up_to<208>();
    multiply_all<GATHER == 1>(s, ring, out, columns, share, group);
    if (kBlocks > 1) cluster_sync();  // nobody leaves while another may still write to it
}
