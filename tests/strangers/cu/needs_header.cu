#include <elsewhere/tiles.h>

__global__ void tiled(float *x) { elsewhere::tile(x); }
