// A transpose only moves elements: an unsigned integer of SIZE bytes stands for any type.
#pragma once

#if SIZE == 4
using Element = unsigned;
#else
using Element = unsigned short;
#endif

constexpr int kVectorSize = 16 / sizeof(Element);  // elements in a 16-byte vector

struct alignas(16) Vector {
    Element elements[kVectorSize];
};

// Column k of a square sub-tile in registers. With 4-byte elements, this only renames registers.
// With 2-byte elements, it takes byte permutations.
__device__ __forceinline__ Vector column(const Vector (&rows)[kVectorSize], int k) {
    Vector result;
#pragma unroll
    for (int i = 0; i < kVectorSize; ++i) result.elements[i] = rows[i].elements[k];
    return result;
}
