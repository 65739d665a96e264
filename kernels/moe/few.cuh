// Few tokens: weights are the first operand of mma.sync, and tokens the columns of the second, each
// its own, zero where it does not go to the expert.
#pragma once
#include "element.cuh"
#include "hopper.cuh"

constexpr int kGroups = GROUPS;  // of eight tokens
constexpr int kTokens = 8 * kGroups;
constexpr int kWarps = WARPS;  // of a block
constexpr int kMostExperts = 256, kMostActive = 128;

// Programmatic dependent launch: lets the next kernel begin, and waits for the end of the last one.
__device__ __forceinline__ void let_next_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_last() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// d += a b: a 16 x 16, b 16 x 8.
__device__ __forceinline__ void mma(float (&d)[4], unsigned a0, unsigned a1, unsigned a2,
                                    unsigned a3, unsigned b0, unsigned b1) {
    // Volatile, as the loads are, which are to be under way together before the first of these.
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Rows g and g + 8 of a, row g of b transposed: eight numbers of 32 along the summed dimension,
// the same eight of all three, so that it does not matter which they are.
__device__ __forceinline__ void mma(float (&d)[4], const Chunk& a, const Chunk& a8,
                                    const Chunk& b) {
    mma(d, a.x, a8.x, a.y, a8.y, b.x, b.y);
    mma(d, a.z, a8.z, a.w, a8.w, b.z, b.w);
}

// The experts that have a token, as bits.
__device__ __forceinline__ void find_experts(unsigned (&present)[kMostExperts / 32],
                                             const int* ids, int slots) {
    if (threadIdx.x < kMostExperts / 32) present[threadIdx.x] = 0;
    __syncthreads();
    for (int slot = threadIdx.x; slot < slots; slot += blockDim.x)
        atomicOr(&present[ids[slot] / 32], 1u << ids[slot] % 32);
    __syncthreads();
}

// The expert of this rank among those that have a token, or -1, and which slot each token has with it,
// or -1. One token's experts need no looking for.
__device__ __forceinline__ int expert_of_rank(int rank, const int* ids, int tokens, int topk,
                                              int (&slot_of)[kTokens]) {
    __shared__ unsigned present[kMostExperts / 32];
    int expert;
    if (threadIdx.x < kTokens) slot_of[threadIdx.x] = tokens == 1 && threadIdx.x == 0 ? rank : -1;
    if (tokens == 1) {
        expert = ids[rank];
    } else {
        find_experts(present, ids, tokens * topk);
        int word = 0;
        for (; word < kMostExperts / 32 && rank >= __popc(present[word]); ++word)
            rank -= __popc(present[word]);
        if (word == kMostExperts / 32) return -1;
        unsigned bits = present[word];
        for (; rank > 0; --rank) bits &= bits - 1;
        expert = word * 32 + __ffs(bits) - 1;
        for (int slot = threadIdx.x; slot < tokens * topk; slot += blockDim.x)
            if (ids[slot] == expert) slot_of[slot / topk] = slot;
    }
    __syncthreads();
    return expert;
}

// All experts that have a token, their number, and which slots the tokens have with them, or -1.
__device__ __forceinline__ int list_experts(const int* ids, int tokens, int topk,
                                            short (&expert_of)[kMostActive],
                                            short (&slot_of)[kMostActive][kTokens]) {
    __shared__ unsigned present[kMostExperts / 32];
    int active = topk;
    if (tokens == 1) {
        for (int i = threadIdx.x; i < topk * kTokens; i += blockDim.x)
            (&slot_of[0][0])[i] = i % kTokens == 0 ? i / kTokens : -1;
        if (threadIdx.x < topk) expert_of[threadIdx.x] = ids[threadIdx.x];
    } else {
        find_experts(present, ids, tokens * topk);
        active = 0;
        for (int word = 0; word < kMostExperts / 32; ++word) active += __popc(present[word]);
        for (int i = threadIdx.x; i < active * kTokens; i += blockDim.x) (&slot_of[0][0])[i] = -1;
        __syncthreads();
        for (int slot = threadIdx.x; slot < tokens * topk; slot += blockDim.x) {
            const int expert = ids[slot];
            int rank = __popc(present[expert / 32] & ((1u << expert % 32) - 1));
            for (int word = 0; word < expert / 32; ++word) rank += __popc(present[word]);
            expert_of[rank] = expert;
            slot_of[rank][slot / topk] = slot;
        }
    }
    __syncthreads();
    return active;
}
