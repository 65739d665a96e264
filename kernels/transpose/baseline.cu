// Loads are coalesced. Stores are not: the lanes of a warp write to 32 rows of the result.
#include "element.cuh"

extern "C" __global__ void __launch_bounds__(256)
transpose(const Element* __restrict__ in, Element* __restrict__ out, int rows, int cols) {
    const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    if (row < rows && col < cols)
        out[static_cast<size_t>(col) * rows + row] = in[static_cast<size_t>(row) * cols + col];
}
