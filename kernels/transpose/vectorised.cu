// As swizzled, 16 bytes an access. A thread reads a square of kVector rows, transposes it in its
// registers and writes its columns, now pieces of rows, into shared memory, from where rows of the
// tile leave in pieces of 16 bytes again. Piece i of row c lies at i ^ c / kVector.
#include "element.cuh"

constexpr int kPieces = 16, kTile = kPieces * kVector;

extern "C" __global__ void __launch_bounds__(256)
transpose(const Element* __restrict__ in, Element* __restrict__ out, int rows, int cols) {
    __shared__ Chunk tile[kTile][kPieces];
    const int i = threadIdx.x / kPieces, j = threadIdx.x % kPieces;
    const int first_row = blockIdx.y * kTile, first_col = blockIdx.x * kTile;

    Chunk square[kVector] = {};
    const int row = first_row + i * kVector, col = first_col + j * kVector;
#pragma unroll
    for (int t = 0; t < kVector; ++t)
        if (row < rows && col < cols)
            square[t] = *reinterpret_cast<const Chunk*>(
                in + static_cast<size_t>(row + t) * cols + col);
#pragma unroll
    for (int t = 0; t < kVector; ++t) tile[j * kVector + t][i ^ j] = column(square, t);
    __syncthreads();

    const int to_row = first_col + i * kVector, to_col = first_row + j * kVector;
#pragma unroll
    for (int t = 0; t < kVector; ++t)
        if (to_row < cols && to_col < rows)
            *reinterpret_cast<Chunk*>(out + static_cast<size_t>(to_row + t) * rows + to_col) =
                tile[i * kVector + t][j ^ i];
}
