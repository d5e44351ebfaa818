#include "core/checkpoint/folder/joined_rows.h"

#include <ATen/core/Tensor.h>
#include <glog/logging.h>

#include <cstdint>

#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {
namespace {

// The slice of the weight that a part's tensor is, or its slice `of_part`.
TensorSlice SliceOf(const TensorInfo& info, const PartName& name,
                    const TensorSlice& of_part) {
  CHECK(of_part.strides == RowMajorStrides(info.sizes)) << info.name;
  TensorSlice slice;
  slice.sizes = WholeOf(info, name).sizes;
  slice.strides = RowMajorStrides(slice.sizes);
  slice.begin = name.part->first * slice.strides[0] + of_part.begin;
  return slice;
}

}  // namespace

JoinedState JoinRows(const StatePart& part, const RowParts& parts) {
  JoinedState joined;
  joined.part.slices = part.slices;
  for (const auto& [name, tensor] : part.tensors) {
    const auto found = FindPart(name, parts);
    if (!found) {
      joined.part.tensors.emplace_back(name, tensor);
      continue;
    }
    TensorInfo info = InfoOf(name, tensor);
    if (!IsDivided(info)) {  // the first part has it for all
      if (found->part->first == 0) {
        joined.part.tensors.emplace_back(found->whole, tensor);
      }
      continue;
    }
    TensorSlice of_part = {info.sizes, tensor.strides().vec(), 0};
    const auto slice = part.slices.find(name);
    if (slice != part.slices.end()) of_part = slice->second;
    info.sizes = of_part.sizes;
    joined.part.slices[name] = SliceOf(info, *found, of_part);
    joined.part.tensors.emplace_back(name, tensor.detach().view({-1}));
    joined.tensor_of_slice[name] = found->whole;
  }
  return joined;
}

}  // namespace tandem
