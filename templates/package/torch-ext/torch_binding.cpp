// Launches a kernel as an operator of torch, which op.py's operator calls.
#include <torch/library.h>

#include "../cuda/launch.h"
#include "registration.h"

static void launch(const std::string& key, at::IntArrayRef where, at::ArrayRef<at::Scalar> words) {
  std::vector<workbench_package::Word> values;
  for (const auto& word : words)
    values.push_back({word.isFloatingPoint() ? 0 : word.toLong(), word.toDouble()});
  workbench_package::launch(key, where, std::move(values));
}

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("launch(str key, int[] where, Scalar[] words) -> ()", &launch);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
