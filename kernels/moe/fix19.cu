// As fix10.cu, with the combine in the second product: what an expert has for a token is weighed and added
// to the token's sum in L2, and no row of an expert is written.
#include "experts.cuh"

// Of a warpgroup, in the memory through which the first product writes: of a tile's tokens, one a thread.
struct Weighed {
    int token;
    float weight;
};

// 64 features (from ``column`` on) of the tile's tokens, into sums: [tokens][columns].
__device__ __forceinline__ void add_to_sums(const float (&d)[64], const Weighed* of, const Tile& tile,
                                            float* sums, int columns, int column) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    float* at = sums + column + 16 * warp + lane / 4;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (8 * i >= tile.width) break;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int place = 8 * i + 2 * (lane % 4) + j;
            if (place < tile.count) {
                const Weighed one = of[place];
                float* to = at + static_cast<size_t>(one.token) * columns;
                atomicAdd(to, one.weight * d[4 * i + j]);
                atomicAdd(to + 8, one.weight * d[4 * i + 2 + j]);
            }
        }
    }
}

__device__ __forceinline__ void multiply_and_add(Shared& s, Ring& ring, float* sums, int columns,
                                                 const Share& share, int group, const int* token,
                                                 const int* ids, const float* weights, int topk) {
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    Weighed* of = reinterpret_cast<Weighed*>(s.out[group]);
    int expert = 0;
    for (int number = share.start; number < share.all; number += share.stride) {
        const Tile tile = tile_of(s, number, share.row_tiles, expert, share.block);
        expert = tile.expert;
        named_barrier_sync(1 + group, 128);  // what lay here is read
        if (thread < tile.count) {
            Weighed own = {__ldg(token + tile.first + thread), 0.0f};
            for (int i = 0; i < topk; ++i)
                if (__ldg(ids + own.token * topk + i) == expert)
                    own.weight = __ldg(weights + own.token * topk + i);
            of[thread] = own;
        }
        named_barrier_sync(1 + group, 128);
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, ring, share.steps, group, lane); break;
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
            default: multiply<kTokens>(a, b, s, ring, share.steps, group, lane);
#undef CASE
        }
        const int column = tile.row_tile * 256 + group * 64;
        add_to_sums(a, of, tile, sums, columns, column);
        if (column + 128 < columns) add_to_sums(b, of, tile, sums, columns, column + 128);
    }
}

// done: [experts], zeros; sums: [tokens][hidden], zeros; ids, weights: [tokens][topk].
extern "C" __global__ void __launch_bounds__(kThreads, 1)
products(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
         const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
         const int* __restrict__ token, const int* __restrict__ first, int* done,
         unsigned short* h, const int* __restrict__ ids, const float* __restrict__ weights,
         float* sums, int experts, int topk, int hidden, int intermediate) {
    extern __shared__ unsigned char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    set_up(s, first, experts);
    Share one, two;
    one.row_tiles = intermediate / 128;
    one.start = blockIdx.x;
    one.all = s.tiles[experts] * one.row_tiles;
    one.steps = hidden / 64;
    one.stride = two.stride = gridDim.x;
    two.row_tiles = (hidden + 255) / 256;
    two.start = (one.start - one.all % one.stride + one.stride) % one.stride;  // whose turn it is
    two.all = s.tiles[experts] * two.row_tiles;
    two.steps = intermediate / 64;
    one.block = two.block = 0;
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
    multiply_and_add(s, ring, sums, hidden, two, group, token, ids, weights, topk);
}
