// As fix4, but with Hopper's warpgroup instruction: the four warps of a block issue one wgmma for
// their 64 rows, and the tensor cores read Q, K and V from shared memory by themselves.
#include "attention.cuh"

constexpr int kThreads = 128;
constexpr int kRows = 64;  // query rows of a block
constexpr int kTile = 64;  // keys in shared memory at a time

struct Shared {
    Element q[kPanels][kRows * 64], k[kPanels][kTile * 64], v[kPanels][kTile * 64];
};
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

// 64 rows of a head from ``first`` on, zeros beyond the end.
__device__ __forceinline__ void copy_tile(Element* to, const Element* head, int first,
                                          int seq_len) {
    constexpr int kChunks = kHeadDim / 8;
    for (int i = threadIdx.x; i < 64 * kChunks; i += kThreads) {
        const int row = i / kChunks, chunk = i % kChunks;
        uint4 piece = make_uint4(0, 0, 0, 0);
        if (first + row < seq_len)
            piece = reinterpret_cast<const uint4*>(head)[(first + row) * kChunks + chunk];
        char* panel = reinterpret_cast<char*>(to) + chunk / 8 * 64 * 128;
        *reinterpret_cast<uint4*>(panel + swizzled(row, chunk % 8)) = piece;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const Element* __restrict__ q, const Element* __restrict__ k,
                  const Element* __restrict__ v, Element* __restrict__ out,
                  int seq_len, float scale) {
    extern __shared__ char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const size_t head = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;
    const int first_row = blockIdx.x * kRows, warp_row = threadIdx.x / 32 * 16;
    const int row = first_row + warp_row + threadIdx.x % 32 / 4;
    copy_tile(s.q[0], q + head, first_row, seq_len);

    float acc[kHeadDim / 2] = {}, score[kTile / 2];
    unsigned p[kTile / 16][4];
    Softmax softmax(scale);
    const int keys = CAUSAL ? min(seq_len, first_row + kRows) : seq_len;
#pragma unroll 1
    for (int first = 0; first < keys; first += kTile) {
        __syncthreads();
        copy_tile(s.k[0], k + head, first, seq_len);
        copy_tile(s.v[0], v + head, first, seq_len);
        async_proxy_fence();
        __syncthreads();

        pin(score);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i)  // 16 columns are 32 bytes further
            wgmma(score, descriptor(s.q[i / 4]) + i % 4 * 2, descriptor(s.k[i / 4]) + i % 4 * 2,
                  i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        pin(score);

        mask_keys(score, first, row, seq_len);
        if (softmax.move_reference(score)) multiply(acc, softmax.rescale);
        softmax.exponentiate(score);
        pack_operand(p, score);

        pin(acc);
        pin(p);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kTile / 16; ++i)  // 16 keys are 2048 bytes further
            wgmma(acc, p[i], descriptor(s.v[0], kTile * 128) + i * 128, 1);
        wgmma_commit();
        wgmma_wait<0>();
        pin(acc);
    }

    const float inverse[2] = {reciprocal(quad_sum(softmax.sum[0])),
                              reciprocal(quad_sum(softmax.sum[1]))};
    store_output(out + head + static_cast<size_t>(first_row + warp_row) * kHeadDim,
                 seq_len - first_row - warp_row, s.q[0], kRows, warp_row, acc, inverse);
}
