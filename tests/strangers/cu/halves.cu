// Halves come with the header of a library that need not be installed.
#include <cublas_v2.h>

static cublasHandle_t library;

__global__ void widened(const __half* x, const __nv_bfloat16* y, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __half2float(x[i]) + __bfloat162float(y[i]);
}
