// State dict: the tensors that a pickle of torch.save names, and where their
// values lie.

#ifndef TANDEM_CORE_PYTORCH_FILE_STATE_DICT_H_
#define TANDEM_CORE_PYTORCH_FILE_STATE_DICT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/pytorch_file/pickle_tree.h"

namespace tandem {

// Storage view: which elements of a storage a tensor has.

// All of them 0 or more; counted in elements.
struct StorageView {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  int64_t storage_size = 0;
};

// InvalidArgument, with the numbers, unless there are as many strides as sizes,
// every element lies within the storage, and there are no more of them than the
// storage has. An empty view is refused unless LibTorch can count its sizes. No
// sum or product overflows, whatever the numbers.
absl::Status CheckView(const StorageView& view);

bool IsEmpty(const StorageView& view);

// Elements from the first to the last one. Requires one that is not empty and
// was checked.
int64_t SpanOf(const StorageView& view);

struct PickledTensor {
  TensorInfo info;
  std::string storage;  // its name: tied weights have the same
  StorageView view;     // checked
  // What is stored is its conjugate, its negative: of views such as x.conj()
  // and x.conj().imag, which PyTorch forms when they are read.
  bool is_conjugate = false;
  bool is_negative = false;
};

// The functions and classes that a state_dict of tensors needs: OrderedDict,
// what makes tensors and parameters, torch.Size, storages and dtypes.
bool IsKnownGlobal(absl::string_view global);

// In the order of the dict. Trusts nothing: InvalidArgument, naming the tensor,
// for a key that is no UTF-8, for a value that is no dense tensor of a known
// dtype, for sizes, strides or an offset that leave the storage, and for a
// tensor that has more elements than its storage (one that was expanded). A
// dict of dicts is refused with the keys that have tensors.
absl::StatusOr<std::vector<PickledTensor>> TensorsOfStateDict(
    const PickleTree& tree);

}  // namespace tandem

#endif  // TANDEM_CORE_PYTORCH_FILE_STATE_DICT_H_
