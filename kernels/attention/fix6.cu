// As fix4.cu, but with wgmma instead of mma.sync: one instruction multiplies the 64 rows of a
// warpgroup and reads Q, K and V from swizzled shared memory.
#include "attention.cuh"

constexpr int kThreads = 128;
constexpr int kRows = 64;  // query rows per block
constexpr int kTile = 64;  // keys per tile

struct SharedStorage {
    Element q[kPanels][kRows * 64], k[kPanels][kTile * 64], v[kPanels][kTile * 64];
};
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

// Copies 64 rows of a head to swizzled shared memory. Rows beyond the end are zeros.
__device__ __forceinline__ void copy_tile(Element* dst, const Element* head, int first_row,
                                          int seq_len) {
    constexpr int kChunks = kHeadDim / 8;
    for (int i = threadIdx.x; i < 64 * kChunks; i += kThreads) {
        const int row = i / kChunks, chunk = i % kChunks;
        uint4 vector = make_uint4(0, 0, 0, 0);
        if (first_row + row < seq_len)
            vector = reinterpret_cast<const uint4*>(head)[(first_row + row) * kChunks + chunk];
        char* panel = reinterpret_cast<char*>(dst) + chunk / 8 * 64 * 128;
        *reinterpret_cast<uint4*>(panel + swizzled(row, chunk % 8)) = vector;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
attention_forward(const Element* __restrict__ q, const Element* __restrict__ k,
                  const Element* __restrict__ v, Element* __restrict__ out,
                  int seq_len, float scale) {
    extern __shared__ char raw[];
    SharedStorage& s =
        *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const size_t head_offset = static_cast<size_t>(blockIdx.y) * seq_len * kHeadDim;
    const int first_row = blockIdx.x * kRows, warp_row = threadIdx.x / 32 * 16;
    const int row = first_row + warp_row + threadIdx.x % 32 / 4;
    copy_tile(s.q[0], q + head_offset, first_row, seq_len);

    float acc[kHeadDim / 2] = {}, score[kTile / 2];
    unsigned p[kTile / 16][4];
    Softmax softmax(scale);
    const int key_end = CAUSAL ? min(seq_len, first_row + kRows) : seq_len;
#pragma unroll 1
    for (int first_key = 0; first_key < key_end; first_key += kTile) {
        __syncthreads();
        copy_tile(s.k[0], k + head_offset, first_key, seq_len);
        copy_tile(s.v[0], v + head_offset, first_key, seq_len);
        async_proxy_fence();
        __syncthreads();

        fence_operand(score);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kHeadDim / 16; ++i)  // + 2: 16 columns are 32 bytes
            wgmma(score, descriptor(s.q[i / 4]) + i % 4 * 2, descriptor(s.k[i / 4]) + i % 4 * 2,
                  i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        fence_operand(score);

        mask_keys(score, first_key, row, seq_len);
        if (softmax.update_reference(score)) scale_rows(acc, softmax.rescale);
        softmax.exponentiate(score);
        pack_operand(p, score);

        fence_operand(acc);
        fence_operand(p);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kTile / 16; ++i)  // + 128: 16 keys are 2048 bytes
            wgmma(acc, p[i], descriptor(s.v[0], kTile * 128) + i * 128, 1);
        wgmma_commit();
        wgmma_wait<0>();
        fence_operand(acc);
    }

    const float inverse[2] = {reciprocal(quad_sum(softmax.sum[0])),
                              reciprocal(quad_sum(softmax.sum[1]))};
    store_output(out + head_offset + static_cast<size_t>(first_row + warp_row) * kHeadDim,
                 seq_len - first_row - warp_row, s.q[0], kRows, warp_row, acc, inverse);
}
