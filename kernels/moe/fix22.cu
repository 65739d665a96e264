// As fix20.cu, with the combine in the second product: what an expert has for a token is weighed in
// registers and added to the token's sum in L2 by the copy engine, a row of 64 numbers at a time. No row
// of an expert is written.
#include "experts.cuh"

// In the memory through which a warpgroup of the first product writes: 64 sums each of some tokens, so far
// apart that banks differ, and behind them the weights of all tokens of the tile.
constexpr int kPitch = 64 * 4 + 16, kAtOnce = kTokens * 128 / kPitch / 8 * 8;
static_assert(kAtOnce * kPitch + kTokens * 4 <= kTokens * 128);

struct Dealt : Shared {
    int number[kStages];  // of the tile that begins there; -1: no more
};
static_assert(sizeof(Dealt) + 1023 <= SHARED_BYTES);

// So many bytes, a multiple of 16, added as fp32 to what is in global memory.
__device__ __forceinline__ void add_line(float* to, const void* from, int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                 ::"l"(__cvta_generic_to_global(to)), "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void lines_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the thread's lines have been read from shared memory, or have been added.
__device__ __forceinline__ void lines_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void lines_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

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

// 64 features (from ``column`` on) of the tile's tokens, weighed, into sums: [tokens][columns]. ``token`` of
// thread i is that of place i.
__device__ __forceinline__ void add_to_sums(const float (&d)[64], unsigned char* stage,
                                            const Tile& tile, int token, float* sums, int columns,
                                            int column, int group) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const float* weights = reinterpret_cast<const float*>(stage + kAtOnce * kPitch);
    float* to = reinterpret_cast<float*>(stage + 2 * (lane % 4) * kPitch) + 16 * warp + lane / 4;
#pragma unroll
    for (int base = 0; base < kTokens; base += kAtOnce) {
        if (base >= tile.width) break;
        lines_wait_read();
        named_barrier_sync(1 + group, 128);  // what lay here is read
#pragma unroll
        for (int i = 0; i < kAtOnce / 8; ++i) {
            const int n = base / 8 + i;
            if (n >= kTokens / 8 || 8 * n >= tile.width) break;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const float by = weights[8 * n + 2 * (lane % 4) + j];
                float* at = to + (8 * i + j) * (kPitch / 4);
                at[0] = by * d[4 * n + j];
                at[8] = by * d[4 * n + 2 + j];
            }
        }
        async_proxy_fence();
        named_barrier_sync(1 + group, 128);
        const int local = thread - base;
        if (local >= 0 && local < kAtOnce && thread < tile.count)
            add_line(sums + static_cast<size_t>(token) * columns + column, stage + local * kPitch,
                     64 * 4);
        lines_commit();
    }
}

__device__ __forceinline__ void multiply_and_add(Dealt& s, Ring& ring, float* sums, int columns,
                                                 const Share& share, int group, const int* token,
                                                 const int* ids, const float* weights, int topk,
                                                 const int* cleared) {
    unsigned char* stage = s.out[group];
    float* weighs = reinterpret_cast<float*>(stage + kAtOnce * kPitch);
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    int expert = 0;
    bool is_clear = false;
    while (true) {
        barrier_wait(&s.full[ring.stage], ring.parity);
        const int number = s.number[ring.stage];
        if (number < 0) break;
        const Tile tile = tile_of(s, number, share.row_tiles, expert, 0);
        expert = tile.expert;
        int own = 0;
        float weight = 0.0f;
        if (thread < tile.count) {
            own = __ldg(token + tile.first + thread);
            for (int i = 0; i < topk; ++i)
                if (__ldg(ids + own * topk + i) == expert) weight = __ldg(weights + own * topk + i);
        }
        named_barrier_sync(1 + group, 128);  // the weights of the last tile are read
        weighs[thread] = weight;
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, ring, share.steps, group, lane); break;
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
            default: multiply<kTokens>(a, b, s, ring, share.steps, group, lane);
#undef CASE
        }
        if (!is_clear) {
            wait_for_count(cleared, gridDim.x);
            async_proxy_fence_all();
            is_clear = true;
        }
        const int column = tile.row_tile * 256 + group * 64;
        add_to_sums(a, stage, tile, own, sums, columns, column, group);
        if (column + 128 < columns)
            add_to_sums(b, stage, tile, own, sums, columns, column + 128, group);
    }
    lines_wait();
}

// A block's part of the sums, by the warps that multiply.
__device__ __forceinline__ void clear(float4* sums, int count, int* cleared) {
    const int begin = static_cast<long long>(blockIdx.x) * count / gridDim.x;
    const int end = static_cast<long long>(blockIdx.x + 1) * count / gridDim.x;
    for (int i = begin + threadIdx.x; i < end; i += 256) sums[i] = {};
    async_proxy_fence_all();
    named_barrier_sync(3, 256);
    if (threadIdx.x == 0) count_up(cleared);
}

// done: [experts + 2], zeros; the last two count what is dealt, and blocks that have cleared their part
// of sums: [tokens][hidden]. ids, weights: [tokens][topk].
extern "C" __global__ void __launch_bounds__(kThreads, 1)
products(const __grid_constant__ TensorMap up, const __grid_constant__ TensorMap down,
         const __grid_constant__ TensorMap h_map, const unsigned short* __restrict__ x,
         const int* __restrict__ token, const int* __restrict__ first, int* done,
         unsigned short* h, const int* __restrict__ ids, const float* __restrict__ weights,
         float* sums, int tokens, int experts, int topk, int hidden, int intermediate) {
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
    clear(reinterpret_cast<float4*>(sums), tokens * hidden / 4, done + experts + 1);
    multiply_all<true>(s, ring, h, intermediate, one, group, done);
    multiply_and_add(s, ring, sums, hidden, two, group, token, ids, weights, topk,
                     done + experts + 1);
}
