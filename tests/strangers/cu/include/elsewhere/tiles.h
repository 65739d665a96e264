namespace elsewhere {
__device__ inline void tile(float *x) { x[threadIdx.x] = 1; }
}  // namespace elsewhere
