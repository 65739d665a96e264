// Both products of experts.cuh in one kernel: who has no tile of the first left goes on with the second,
// expert by expert in the same order, as soon as an expert's part of h is there.
#include "experts.cuh"

// done: [experts], zeros. rows: [places][hidden].
extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(kThreads, 1)
products(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
         const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
         const int* __restrict__ token, const int* __restrict__ first, int* done,
         unsigned short* h, unsigned short* __restrict__ rows, int experts, int hidden,
         int intermediate) {
    extern __shared__ unsigned char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    set_up(s, first, experts);
    const int start = blockIdx.x / kBlocks, stride = gridDim.x / kBlocks;
    Share one, two;
    one.row_tiles = intermediate / 128;
    one.start = start;
    one.all = s.tiles[experts] * one.row_tiles;
    one.steps = hidden / 64;
    two.row_tiles = (hidden + 255) / 256;
    two.start = (start - one.all % stride + stride) % stride;  // whose turn it is
    two.all = s.tiles[experts] * two.row_tiles;
    two.steps = intermediate / 64;
    one.stride = two.stride = stride;
    one.block = two.block = kBlocks == 1 ? 0 : block_of_cluster();
    Ring ring;
    if (group == 2) {
        give_registers_down_to<88>();
        fetch_gathered(s, ring, up, x, token, one);
        if (threadIdx.x == 256)
            fetch_rows(s, ring, down, h_map, two, done, 2 * kBlocks * one.row_tiles);
        return;
    }
    take_registers_up_to<208>();
    multiply_all<true>(s, ring, h, intermediate, one, group, done);
    multiply_all<false>(s, ring, rows, hidden, two, group);
    if (kBlocks > 1) cluster_sync();  // nobody leaves while another may still write to it
}
