// The products of all experts, each with its own tokens: a tile is 256 rows of an expert's weights by
// up to 128 of its tokens. Weights are the first operand of wgmma and tokens the second, so that a
// tile is as wide as it has tokens, to kGrain. One warpgroup fetches, two multiply.
// CLUSTER=2: two blocks have the same weights, of which each fetches one half for both, and tokens of
// their own.
// GROUP: so many tiles of an expert's tokens beside each other in time, then the next weights; 0: all.
// TANH: the activation by one instruction of 11 bits in place of two of 22.
#pragma once
#include "element.cuh"
#include "hopper.cuh"

constexpr int kStages = STAGES;
constexpr int kThreads = 384;
constexpr int kBlocks = CLUSTER;  // of a cluster
constexpr int kTokens = 128;      // of a tile, at most
constexpr int kGrain = GRAIN;     // its width is a multiple of
constexpr int kLag = LAG;         // gathered stages under way behind the newest; 0: copies say so
constexpr int kGatherArrivals = kLag ? 4 : 128;
constexpr int kPending = PENDING; // steps whose products may be running while the next is issued
constexpr int kBoxTokens = 32;    // of a copied box of tokens
constexpr int kMostExperts = 256;
constexpr int kPartBytes = 128 * 128, kTokenBytes = kTokens * 128;  // 64 columns of bf16

struct Shared {
    unsigned char weights[kStages][2][kPartBytes], tokens[kStages][kTokenBytes];
    unsigned char out[2][kTokens * 128];  // of a warpgroup: 64 features of every token
    Barrier full[kStages], empty[kStages];
    int first[kMostExperts + 1];
    unsigned short tiles[kMostExperts + 1];  // of a cluster's tokens, of all experts before
};
// A stage is free when the next one's products have been issued, which waits for its signal.
static_assert(kLag + 2 <= kStages, "who fetches would wait for itself");
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

__device__ __forceinline__ float activated(float x) {
#if TANH
    float tangent;
    asm("tanh.approx.f32 %0, %1;" : "=f"(tangent) : "f"(0.5f * x));
    return fmaf(0.5f * x, tangent, 0.5f * x);
#else
    return silu(x);
#endif
}

// Where in the ring one is, and the parity of its round.
struct Ring {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// A block's part of a tile: ``count`` places from ``first`` on, up to ``width`` of them, and the last
// place of the expert.
struct Tile {
    int expert, row_tile, first, count, width, last;
};

// Tile ``number``: expert by expert, tokens fastest. ``expert`` is that of an earlier tile.
__device__ __forceinline__ Tile tile_of(const Shared& s, int number, int row_tiles, int expert,
                                        int block) {
    while (number >= s.tiles[expert + 1] * row_tiles) ++expert;
    const int token_tiles = s.tiles[expert + 1] - s.tiles[expert];
    const int within = number - s.tiles[expert] * row_tiles;
    const int count = s.first[expert + 1] - s.first[expert], parts = token_tiles * kBlocks;
    const int each = (count + parts - 1) / parts;
    const int width = (each + kGrain - 1) / kGrain * kGrain;
    Tile tile;
    tile.expert = expert;
#if GROUP
    const int before = within / (GROUP * row_tiles) * GROUP;
    const int beside = min(GROUP, token_tiles - before), of_group = within - before * row_tiles;
#else
    const int before = 0, beside = token_tiles, of_group = within;
#endif
    tile.row_tile = of_group / beside;
    const int from = ((before + of_group - tile.row_tile * beside) * kBlocks + block) * width;
    tile.first = s.first[expert] + from;
    tile.count = max(0, min(width, count - from));
    tile.width = max(1, (tile.count + kGrain - 1) / kGrain) * kGrain;
    tile.last = s.first[expert + 1] - 1;
    return tile;
}

__device__ __forceinline__ void release(Barrier* barrier, int lane) {
    if (kBlocks == 1) {
        if (lane == 0) barrier_arrive(barrier);
    } else if (lane < kBlocks) {
        barrier_arrive_at(barrier, lane);
    }
}

// This block's share of a stage's weights, to all of the cluster.
__device__ __forceinline__ void copy_weights(unsigned char (&to)[2][kPartBytes],
                                             const TensorMap& map, int column, int row, int part,
                                             int expert, int block, Barrier* barrier) {
    if (kBlocks == 1)
        copy_box(to, map, column, row, part, expert, barrier);
    else
        copy_box_to_all(to[block], map, column, row, part + block, expert, barrier, 3);
}

template <int kN>
__device__ __forceinline__ void multiply(float (&a)[64], float (&b)[64], Shared& s, Ring& ring,
                                         int steps, int group, int lane) {
    int before = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        barrier_wait(&s.full[ring.stage], ring.parity);
        const unsigned weights = descriptor(s.weights[ring.stage][0]) + group * (64 * 128 >> 4);
        const unsigned tokens = descriptor(s.tokens[ring.stage]);
        if (kLag == 0) async_proxy_fence();
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            Wgmma<kN>::run(a, weights + 2 * i, tokens + 2 * i, step + i);
            Wgmma<kN>::run(b, weights + (kPartBytes >> 4) + 2 * i, tokens + 2 * i, step + i);
        }
        wgmma_commit();
        wgmma_wait<kPending>();
        if (kPending == 0)
            release(&s.empty[ring.stage], lane);
        else if (step > 0)
            release(&s.empty[before], lane);
        before = ring.stage;
        ring.advance();
    }
    wgmma_wait<0>();
    pin(a);
    pin(b);
    if (kPending) release(&s.empty[before], lane);
}

// 64 features (from ``column`` on) of the tile's tokens, by way of shared memory.
__device__ __forceinline__ void write_out(const float (&d)[64], unsigned char* stage,
                                          const Tile& tile, unsigned short* out, int columns,
                                          int column, int group) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const unsigned to = shared_address(stage) + (lane / 16 * 8 + lane % 8) * 128 +
                        ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
    named_barrier_sync(1 + group, 128);  // what lay here is read
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (16 * i < tile.width)
            store_transposed(to + i * (16 * 128), pack(d[8 * i], d[8 * i + 1]),
                             pack(d[8 * i + 2], d[8 * i + 3]), pack(d[8 * i + 4], d[8 * i + 5]),
                             pack(d[8 * i + 6], d[8 * i + 7]));
    }
    named_barrier_sync(1 + group, 128);
    const int chunk = thread % 8, row = thread / 8;
    const unsigned char* from = stage + row * 128 + (chunk ^ row % 8) * 16;
    unsigned short* at = out + static_cast<size_t>(tile.first + row) * columns + column + 8 * chunk;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (16 * i + row < tile.count)
            *reinterpret_cast<Chunk*>(at + static_cast<size_t>(16 * i) * columns) =
                *reinterpret_cast<const Chunk*>(from + i * (16 * 128));
    }
}

// Barriers, and of every expert its first place and how many tiles come before it.
__device__ __forceinline__ void set_up(Shared& s, const int* first, int experts) {
    const int lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            barrier_init(&s.full[stage], 1 + kGatherArrivals);
            barrier_init(&s.empty[stage], 8 * kBlocks);
        }
        barrier_init_fence();
    }
    for (int i = threadIdx.x; i <= experts; i += kThreads) s.first[i] = first[i];
    __syncthreads();
    if (threadIdx.x < 32) {
        int before = 0;
        for (int base = 0; base < experts; base += 32) {
            const int expert = base + lane;
            const int count = expert < experts ? s.first[expert + 1] - s.first[expert] : 0;
            const int own = (count + kBlocks * kTokens - 1) / (kBlocks * kTokens);
            int upto = own;
            for (int step = 1; step < 32; step *= 2) {
                const int below = __shfl_up_sync(~0u, upto, step);
                if (lane >= step) upto += below;
            }
            if (expert < experts) s.tiles[expert] = before + upto - own;
            before += __shfl_sync(~0u, upto, 31);
        }
        if (lane == 0) s.tiles[experts] = before;
    }
    __syncthreads();
    if (kBlocks > 1) cluster_sync();
}

// What a block does: tiles from ``start`` on, every ``stride``-th of those of its matrix.
struct Share {
    int start, stride, all, row_tiles, steps, block;
};

// Fills the ring for the first product: weights [experts][2][rows][64 steps], a tile 128 rows of gate
// and the same 128 of up; x [tokens][64 steps], of which ``token`` names the row at a place. All
// threads of the warpgroup copy tokens, 16 bytes at a time.
__device__ __forceinline__ void fetch_gathered(Shared& s, Ring& ring, const TensorMap& weights,
                                               const unsigned short* x, const int* token,
                                               const Share& share) {
    const int thread = threadIdx.x % 128, lane = thread % 32, chunk = thread % 8, row = thread / 8;
    const int to = row * 128 + (chunk ^ row % 8) * 16;
    Ring behind = ring;
    int under_way = 0, expert = 0;
    int next[8];  // tokens of the rows row + 16 i of the next tile
    auto look_up = [&](int number) {
        if (number >= share.all) return;
        const Tile tile = tile_of(s, number, share.row_tiles, expert, share.block);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            next[i] = __ldg(token + min(tile.first + row + 16 * i, tile.last));
    };
    auto signal = [&]() {
        async_proxy_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.full[behind.stage]);
        behind.advance();
    };
    look_up(share.start);
    for (int number = share.start; number < share.all; number += share.stride) {
        const Tile tile = tile_of(s, number, share.row_tiles, expert, share.block);
        expert = tile.expert;
        const unsigned short* from[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
            from[i] = x + static_cast<size_t>(next[i]) * (share.steps * 64) + chunk * 8;
        look_up(number + share.stride);
#pragma unroll 1
        for (int step = 0; step < share.steps; ++step) {
            barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
            if (thread == 0) {
                barrier_expect(&s.full[ring.stage], 2 * kPartBytes);
                copy_weights(s.weights[ring.stage], weights, step * 64, tile.row_tile * 128, 0,
                             tile.expert, share.block, &s.full[ring.stage]);
            }
            const unsigned at = shared_address(s.tokens[ring.stage]) + to;
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (16 * i < tile.width) copy_chunk(at + i * (16 * 128), from[i] + step * 64);
            if (kLag == 0) {
                copies_arrive(&s.full[ring.stage]);
                ring.advance();
                continue;
            }
            copies_commit();
            ring.advance();
            if (under_way == kLag) {
                copies_wait<kLag>();
                signal();
            } else {
                ++under_way;
            }
        }
    }
    copies_wait<0>();
    for (; under_way > 0; --under_way) signal();
}

// Fills the ring for the second product, by one thread: weights [experts][rows / 128][128][64 steps],
// a tile 256 rows; h [places][64 steps]. ``done``, where it is given, counts an expert's warpgroups
// that have written their part of h, each_done of them for every cluster's tokens.
__device__ __forceinline__ void fetch_rows(Shared& s, Ring& ring, const TensorMap& weights,
                                           const TensorMap& h, const Share& share,
                                           const int* done = nullptr, int each_done = 0) {
    int expert = 0, ready = -1;
    for (int number = share.start; number < share.all; number += share.stride) {
        const Tile tile = tile_of(s, number, share.row_tiles, expert, share.block);
        expert = tile.expert;
        if (done && ready != expert) {
            wait_for_count(done + expert, each_done * (s.tiles[expert + 1] - s.tiles[expert]));
            async_proxy_fence_all();
            ready = expert;
        }
        const int boxes = (tile.width + kBoxTokens - 1) / kBoxTokens;
        for (int step = 0; step < share.steps; ++step) {
            barrier_wait(&s.empty[ring.stage], ring.parity ^ 1);
            barrier_arrive(&s.full[ring.stage], kGatherArrivals);  // for the warps that do not copy here
            barrier_expect(&s.full[ring.stage], 2 * kPartBytes + boxes * kBoxTokens * 128);
            copy_weights(s.weights[ring.stage], weights, step * 64, 0, 2 * tile.row_tile,
                         tile.expert, share.block, &s.full[ring.stage]);
            for (int box = 0; box < boxes; ++box)
                copy_box(s.tokens[ring.stage] + box * kBoxTokens * 128, h, step * 64,
                         tile.first + box * kBoxTokens, &s.full[ring.stage]);
            ring.advance();
        }
    }
}

// Multiplies what is in the ring and writes out [places][columns]: silu(x gate^T) * (x up^T), or the
// sums as they are.
template <bool kActivates>
__device__ __forceinline__ void multiply_all(Shared& s, Ring& ring, unsigned short* out, int columns,
                                             const Share& share, int group, int* done = nullptr) {
    const int lane = threadIdx.x % 32;
    int expert = 0;
    for (int number = share.start; number < share.all; number += share.stride) {
        const Tile tile = tile_of(s, number, share.row_tiles, expert, share.block);
        expert = tile.expert;
        float a[64], b[64];
        switch (tile.width) {
#define CASE(WIDTH) \
    case WIDTH: multiply<WIDTH>(a, b, s, ring, share.steps, group, lane); break;
#if GRAIN == 16
            CASE(16) CASE(32) CASE(48) CASE(64) CASE(80) CASE(96) CASE(112)
#endif
            default: multiply<kTokens>(a, b, s, ring, share.steps, group, lane);
#undef CASE
        }
        if (kActivates) {
            float h[64];
#pragma unroll
            for (int i = 0; i < 64; ++i) h[i] = activated(a[i]) * b[i];
            write_out(h, s.out[group], tile, out, columns, tile.row_tile * 128 + group * 64, group);
            if (done) {
                async_proxy_fence_all();
                named_barrier_sync(1 + group, 128);
                if (threadIdx.x % 128 == 0) count_up(done + tile.expert);
            }
        } else {
            const int column = tile.row_tile * 256 + group * 64;
            write_out(a, s.out[group], tile, out, columns, column, group);
            if (column + 128 < columns)
                write_out(b, s.out[group], tile, out, columns, column + 128, group);
        }
    }
}
