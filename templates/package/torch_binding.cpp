// The launcher as operators of torch, which op.py's operator calls: they take no tensors.
#include <torch/library.h>

#include "../cuda/launch.h"
#include "registration.h"

namespace {

using namespace workbench_package;

int64_t find(const std::string& key) {
  const auto place = indices().find(key);
  return place == indices().end() ? -1 : place->second;
}

std::string kinds(int64_t index) { return entries().at(index).kinds; }

void launch_words(int64_t index, at::IntArrayRef where, at::IntArrayRef words) {
  TORCH_CHECK(where.size() == 9, "nine numbers say where a kernel is launched");
  launch(index, where.data(), words.data(), words.size());
}

void encode_map(int64_t target, int64_t address, int64_t type, at::IntArrayRef extents,
                at::IntArrayRef strides, at::IntArrayRef box, bool swizzled) {
  const size_t rank = extents.size();
  TORCH_CHECK(rank <= 5 && strides.size() == rank && box.size() == rank, "one box per dimension");
  encode(target, address, type, extents.data(), strides.data(), box.data(), rank, swizzled);
}

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("find(str key) -> int", &find);
  ops.def("kinds(int index) -> str", &kinds);
  ops.def("launch(int index, int[] where, int[] words) -> ()", &launch_words);
  ops.def("encode(int target, int address, int type, int[] extents, int[] strides, int[] box, "
          "bool swizzled) -> ()", &encode_map);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
