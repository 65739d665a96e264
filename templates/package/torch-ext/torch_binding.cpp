// kernel-builder builds an extension of torch. op.py registers the operator, cuda.py launches.
#include <torch/library.h>

#include "registration.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
