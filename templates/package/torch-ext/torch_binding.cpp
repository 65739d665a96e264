// Launches a kernel by the CUDA runtime, as an operator of torch that op.py's operator calls.
#include <torch/library.h>

#include <mutex>
#include <vector>

#include "../cuda/launch.h"
#include "registration.h"

namespace {

void check(cudaError_t status) { TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status)); }

union Value {
  int64_t integer;
  float narrow;
  double wide;
};

// where: device, stream, grid, block, bytes of shared memory, early start, cooperative, carveout.
// words: the arguments. A pointer is an integer, and a struct the address of its bytes on the host.
void launch(const std::string& key, at::IntArrayRef where, at::ArrayRef<at::Scalar> words) {
  const auto place = workbench_package::entries().find(key);
  TORCH_CHECK_NOT_IMPLEMENTED(place != workbench_package::entries().end(),
                              "the extension has no kernel ", key);
  const auto& [function, kinds] = place->second;
  TORCH_CHECK_VALUE(words.size() == kinds.size(), key, " takes ", kinds.size(),
                    " arguments, not ", words.size());
  std::vector<Value> values(words.size());
  std::vector<void*> arguments(words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    if (kinds[i] == 'f') values[i].narrow = words[i].to<float>();
    else if (kinds[i] == 'd') values[i].wide = words[i].to<double>();
    else values[i].integer = words[i].to<int64_t>();
    arguments[i] = kinds[i] == 's' ? reinterpret_cast<void*>(values[i].integer) : &values[i];
  }
  static std::mutex attributes_of_functions;  // another thread may launch it with less memory
  const std::lock_guard<std::mutex> lock(attributes_of_functions);
  check(cudaSetDevice(static_cast<int>(where[0])));
  const int bytes = static_cast<int>(where[8]), carveout = static_cast<int>(where[11]);
  if (bytes > 0)
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  if (carveout >= 0)
    check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, carveout));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = where[9] != 0;
  attributes[1].id = cudaLaunchAttributeCooperative;
  attributes[1].val.cooperative = where[10] != 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(where[2], where[3], where[4]);
  config.blockDim = dim3(where[5], where[6], where[7]);
  config.dynamicSmemBytes = bytes;
  config.stream = reinterpret_cast<cudaStream_t>(where[1]);
  config.attrs = attributes;
  config.numAttrs = 2;
  check(cudaLaunchKernelExC(&config, function, arguments.data()));
}

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("launch(str key, int[] where, Scalar[] words) -> ()", &launch);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
