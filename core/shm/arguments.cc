#include "core/shm/arguments.h"

namespace tandem {
namespace {

void CheckDense(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.device().is_cpu() &&
                  tensor.layout() == at::kStrided && tensor.is_contiguous(),
              "shm takes dense contiguous tensors on the CPU");
  TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(),
              "shm takes tensors as their memory has them: resolve_conj() and "
              "resolve_neg() come first");
}

}  // namespace

ConstBytes InputBytes(const at::Tensor& tensor) {
  CheckDense(tensor);
  return {static_cast<const std::byte*>(tensor.const_data_ptr()),
          tensor.nbytes(), tensor.scalar_type()};
}

MutableBytes OutputBytes(const at::Tensor& tensor) {
  CheckDense(tensor);
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes(),
          tensor.scalar_type()};
}

void CheckDtypes(c10::ScalarType one, c10::ScalarType other) {
  TORCH_CHECK(one == other, "tensors differ in dtype: ", one, " and ", other);
}

void CheckSplits(const std::vector<int64_t>& splits, int64_t rows) {
  int64_t left = rows;
  for (const int64_t split : splits) {
    TORCH_CHECK(split >= 0, "a split cannot be negative, but one is ", split);
    TORCH_CHECK(split <= left, "splits exceed the tensor, which has ", rows,
                " rows: they are ", splits);
    left -= split;
  }
  TORCH_CHECK(left == 0, "splits do not add up to the tensor, which has ", rows,
              " rows: they are ", splits);
}

int64_t RowsOf(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? 1 : tensor.size(0);
}

int CheckIndex(const char* what, int64_t index, size_t size) {
  TORCH_CHECK(index >= 0 && index < static_cast<int64_t>(size), "there is no ",
              what, " ", index, " among ", size);
  return static_cast<int>(index);
}

}  // namespace tandem
