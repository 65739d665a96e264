// Few tokens: weights are operand A of mma.sync, tokens are the columns of B. A token's column is
// zero if the token is not routed to the expert.
#pragma once
#include "element.cuh"
#include "hopper.cuh"

constexpr int kGroups = GROUPS;  // groups of eight tokens, the columns of one mma
constexpr int kMaxTokens = 8 * kGroups;
constexpr int kWarps = WARPS;
constexpr int kMaxExperts = 256, kMaxActive = 128;

// Programmatic dependent launch: lets the next kernel start, or waits for the previous one to end.
__device__ __forceinline__ void launch_dependents() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_previous_grid() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// d += a b; a is 16 x 16, b is 16 x 8.
__device__ __forceinline__ void mma(float (&d)[4], unsigned a0, unsigned a1, unsigned a2,
                                    unsigned a3, unsigned b0, unsigned b1) {
    // Volatile like the loads, so that all loads are issued before the first mma.
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two mmas from 16-byte chunks: rows g and g + 8 of a, column g of b. A chunk has eight of 32
// elements along k. Any order along k is valid, as it is the same in all three chunks.
__device__ __forceinline__ void mma(float (&d)[4], const Chunk& a, const Chunk& a8,
                                    const Chunk& b) {
    mma(d, a.x, a8.x, a.y, a8.y, b.x, b.y);
    mma(d, a.z, a8.z, a.w, a8.w, b.z, b.w);
}

// Sets the bit of every expert that has a token.
__device__ __forceinline__ void mark_experts(unsigned (&present)[kMaxExperts / 32],
                                             const int* ids, int slots) {
    if (threadIdx.x < kMaxExperts / 32) present[threadIdx.x] = 0;
    __syncthreads();
    for (int slot = threadIdx.x; slot < slots; slot += blockDim.x)
        atomicOr(&present[ids[slot] / 32], 1u << ids[slot] % 32);
    __syncthreads();
}

// Returns the expert of this rank among the experts with a token, or -1. slot_of[token]: the
// token's slot of this expert, or -1. A single token needs no search: its experts are ``ids``.
__device__ __forceinline__ int find_expert(int rank, const int* ids, int tokens, int topk,
                                           int (&slot_of)[kMaxTokens]) {
    __shared__ unsigned present[kMaxExperts / 32];
    int expert;
    if (threadIdx.x < kMaxTokens)
        slot_of[threadIdx.x] = tokens == 1 && threadIdx.x == 0 ? rank : -1;
    if (tokens == 1) {
        expert = ids[rank];
    } else {
        mark_experts(present, ids, tokens * topk);
        int word = 0;
        for (; word < kMaxExperts / 32 && rank >= __popc(present[word]); ++word)
            rank -= __popc(present[word]);
        if (word == kMaxExperts / 32) return -1;
        unsigned bits = present[word];
        for (; rank > 0; --rank) bits &= bits - 1;
        expert = word * 32 + __ffs(bits) - 1;
        for (int slot = threadIdx.x; slot < tokens * topk; slot += blockDim.x)
            if (ids[slot] == expert) slot_of[slot / topk] = slot;
    }
    __syncthreads();
    return expert;
}

// Lists the experts with a token and returns their number. slot_of[rank][token]: the token's slot
// of the expert of this rank, or -1.
__device__ __forceinline__ int list_experts(const int* ids, int tokens, int topk,
                                            short (&expert_of)[kMaxActive],
                                            short (&slot_of)[kMaxActive][kMaxTokens]) {
    __shared__ unsigned present[kMaxExperts / 32];
    int active = topk;
    if (tokens == 1) {
        for (int i = threadIdx.x; i < topk * kMaxTokens; i += blockDim.x)
            (&slot_of[0][0])[i] = i % kMaxTokens == 0 ? i / kMaxTokens : -1;
        if (threadIdx.x < topk) expert_of[threadIdx.x] = ids[threadIdx.x];
    } else {
        mark_experts(present, ids, tokens * topk);
        active = 0;
        for (int word = 0; word < kMaxExperts / 32; ++word) active += __popc(present[word]);
        for (int i = threadIdx.x; i < active * kMaxTokens; i += blockDim.x)
            (&slot_of[0][0])[i] = -1;
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
