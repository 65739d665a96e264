// As fix10.cu, but tiles of the second product are dealt to who has room.
#include "experts.cuh"

struct Dealt : Shared {
    int number[kStages];  // of the tile that begins there; -1: no more
};
static_assert(sizeof(Dealt) + 1023 <= SHARED_BYTES);

__device__ __forceinline__ void fetch_dealt(Dealt& s, Ring& ring, const TensorMap& weights,
                                            const TensorMap& h, const Share& share, int* dealt,
                                            const int* done, int each_done) {
    int expert = 0, ready = -1;
    auto fetch = [&](int number) {
        const Tile tile = tile_of(s, number, share.row_tiles, expert, 0);
        expert = tile.expert;
        if (ready != expert) {
            wait_for_count(done + expert, each_done * (s.tiles[expert + 1] - s.tiles[expert]));
            async_proxy_fence_all();
            ready = expert;
        }
        const int boxes = (tile.width + kBoxTokens - 1) / kBoxTokens;
        for (int step = 0; step < share.steps; ++step) {
            Barrier* full = &s.full[ring.stage];
            barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
            if (step == 0) s.number[ring.stage] = number;
            barrier_arrive(full, kGatherArrivals);  // for the warps that do not copy here
            barrier_expect(full, 2 * kPartBytes + boxes * kBoxTokens * 128);
            copy_weights(s.weights[ring.stage], weights, step * 64, 0, 2 * tile.row_tile,
                         tile.expert, 0, full);
            for (int box = 0; box < boxes; ++box)
                copy_box(s.tokens[ring.stage] + box * kBoxTokens * 128, h, step * 64,
                         tile.first + box * kBoxTokens, full);
            ring.advance();
        }
    };
    for (int number, next = atomicAdd(dealt, 1); (number = next) < share.all;) {
        next = atomicAdd(dealt, 1);
        fetch(number);
    }
    barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
    s.number[ring.stage] = -1;
    barrier_arrive(&s.full[ring.stage], 1 + kGatherArrivals);
}

__device__ __forceinline__ void multiply_dealt(Dealt& s, Ring& ring, unsigned short* out, int columns,
                                               const Share& share, int group) {
    const int lane = threadIdx.x % 32;
    int expert = 0;
    while (true) {
        barrier_wait(&s.full[ring.stage], ring.parity);
        const int number = s.number[ring.stage];
        if (number < 0) break;
        const Tile tile = tile_of(s, number, share.row_tiles, expert, 0);
        expert = tile.expert;
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, ring, share.steps, group, lane); break;
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
            default: multiply<kTokens>(a, b, s, ring, share.steps, group, lane);
#undef CASE
        }
        const int column = tile.row_tile * 256 + group * 64;
        write_out(a, s.out[group], tile, out, columns, column, group);
        if (column + 128 < columns)
            write_out(b, s.out[group], tile, out, columns, column + 128, group);
    }
}

// done: [experts + 1], zeros; the last counts what is dealt. rows: [places][hidden].
extern "C" __global__ void __launch_bounds__(kThreads, 1)
products(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
         const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
         const int* __restrict__ token, const int* __restrict__ first, int* done,
         unsigned short* h, unsigned short* __restrict__ rows, int experts, int hidden, int intermediate) {
    extern __shared__ unsigned char raw[];
    Dealt& s = *reinterpret_cast<Dealt*>(raw + (-shared_address(raw) & 1023));
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    set_up(s, first, experts);
    Share one, two;
    one.row_tiles = intermediate / 128;
    one.start = blockIdx.x;
    one.all = s.tiles[experts] * one.row_tiles;
    one.steps = hidden / 64;
    one.stride = gridDim.x;
    two.row_tiles = (hidden + 255) / 256;
    two.all = s.tiles[experts] * two.row_tiles;
    two.steps = intermediate / 64;
    one.block = 0;
    Ring ring;
    if (group == 2) {
        give_registers_down_to<88>();
        fetch_gathered(s, ring, up, x, token, one);
        if (threadIdx.x == 256)
            fetch_dealt(s, ring, down, h_map, two, done + experts, done, 2 * one.row_tiles);
        return;
    }
    take_registers_up_to<208>();
    multiply_all<true>(s, ring, h, intermediate, one, group, done);
    multiply_dealt(s, ring, rows, hidden, two, group);
}
