// Nothing is computed, so an element is so many bits: SIZE bytes.
#pragma once

#if SIZE == 4
using Element = unsigned;
#else
using Element = unsigned short;
#endif

constexpr int kVector = 16 / sizeof(Element);  // elements of one access of 16 bytes

struct alignas(16) Chunk {
    Element at[kVector];
};

// The square of kVector rows that a thread holds, transposed: only names of registers for four
// bytes, byte permutations for two.
__device__ __forceinline__ Chunk column(const Chunk (&rows)[kVector], int k) {
    Chunk result;
#pragma unroll
    for (int i = 0; i < kVector; ++i) result.at[i] = rows[i].at[k];
    return result;
}
