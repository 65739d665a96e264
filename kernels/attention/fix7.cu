// As fix6.cu, but one thread loads K and V by TMA into a ring buffer of four tiles. Instead of
// barriers for the whole block, mbarriers signal that a tile is loaded (full) or released (empty).
#include "attention.cuh"

constexpr int kThreads = 128;
constexpr int kRows = 64;   // query rows per block
constexpr int kTile = 64;   // keys per tile
constexpr int kStages = 4;  // tiles in the ring buffer

struct SharedStorage {
    Element q[kPanels][kRows * 64];
    Element k[kStages][kPanels][kTile * 64], v[kStages][kPanels][kTile * 64];
    Barrier q_full, k_full[kStages], v_full[kStages], empty[kStages];
};
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Element* __restrict__ out,
                  int seq_len, float scale) {
    extern __shared__ char raw[];
    SharedStorage& s =
        *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int head = blockIdx.y, first_row = blockIdx.x * kRows, warp_row = threadIdx.x / 32 * 16;
    const int row = first_row + warp_row + threadIdx.x % 32 / 4;
    const int tiles = ((CAUSAL ? min(seq_len, first_row + kRows) : seq_len) + kTile - 1) / kTile;

    auto load_tile = [&](int tile) {
        const int stage = tile % kStages;
        barrier_expect(&s.k_full[stage], sizeof(s.k[0]));
        barrier_expect(&s.v_full[stage], sizeof(s.v[0]));
        for (int panel = 0; panel < kPanels; ++panel)
            tma_load(s.k[stage][panel], k_map, panel * 64, tile * kTile, head, &s.k_full[stage]);
        for (int panel = 0; panel < kPanels; ++panel)
            tma_load(s.v[stage][panel], v_map, panel * 64, tile * kTile, head, &s.v_full[stage]);
    };
    if (threadIdx.x == 0) {
        barrier_init(&s.q_full, 1);
        for (int stage = 0; stage < kStages; ++stage) {
            barrier_init(&s.k_full[stage], 1);
            barrier_init(&s.v_full[stage], 1);
            barrier_init(&s.empty[stage], kThreads / 32);
        }
        barrier_init_fence();
        barrier_expect(&s.q_full, sizeof(s.q));
        for (int panel = 0; panel < kPanels; ++panel)
            tma_load(s.q[panel], q_map, panel * 64, first_row, head, &s.q_full);
        for (int tile = 0; tile < min(tiles, kStages); ++tile) load_tile(tile);
    }
    __syncthreads();

    float acc[kHeadDim / 2] = {}, score[kTile / 2];
    unsigned p[kTile / 16][4];
    Softmax softmax(scale);
    barrier_wait(&s.q_full, 0);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % kStages;
        const unsigned parity = tile / kStages & 1;
        barrier_wait(&s.k_full[stage], parity);
        fence_operand(score);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i)
            wgmma(score, descriptor(s.q[i / 4]) + i % 4 * 2,
                  descriptor(s.k[stage][i / 4]) + i % 4 * 2, i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        fence_operand(score);

        mask_keys(score, tile * kTile, row, seq_len);
        if (softmax.update_reference(score)) scale_rows(acc, softmax.rescale);
        softmax.exponentiate(score);
        pack_operand(p, score);

        barrier_wait(&s.v_full[stage], parity);
        fence_operand(acc);
        fence_operand(p);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kTile / 16; ++i)
            wgmma(acc, p[i], descriptor(s.v[stage][0], kTile * 128) + i * 128, 1);
        wgmma_commit();
        wgmma_wait<0>();
        fence_operand(acc);
        if (threadIdx.x % 32 == 0) barrier_arrive(&s.empty[stage]);
        if (threadIdx.x == 0 && tile + kStages < tiles) {
            barrier_wait(&s.empty[stage], parity);
            load_tile(tile + kStages);
        }
        __syncwarp();
    }

    const float inverse[2] = {reciprocal(quad_sum(softmax.sum[0])),
                              reciprocal(quad_sum(softmax.sum[1]))};
    store_output(out + (static_cast<size_t>(head) * seq_len + first_row + warp_row) * kHeadDim,
                 seq_len - first_row - warp_row, s.q[0], kRows, warp_row, acc, inverse);
}
