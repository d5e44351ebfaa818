// PyTorch files: tensors of a state_dict that Python's torch.save wrote (.pt,
// .pth, pytorch_model.bin).
//
// torch.load(weights_only=True) without Python: a zip archive (zip_directory.h)
// whose data.pkl says what the tensors are (pickle_tree.h, state_dict.h), and
// whose other records are their values. No pickle is executed. LibTorch's own
// reader is not used: it inflates records before anybody can ask for their
// size, and its unpickler makes tensors that leave their storage.

#ifndef TANDEM_CORE_PYTORCH_FILE_PYTORCH_FILE_H_
#define TANDEM_CORE_PYTORCH_FILE_PYTORCH_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/checkpoint/stored_tensors.h"

namespace tandem {

// The longest data.pkl that is read, in bytes.
constexpr uint64_t kMaxPickleBytes = 16 << 20;

// Whether the file begins as one that torch.save writes, now or before PyTorch
// 1.6. A safetensors file does not. Errors as RegularFile's.
absl::StatusOr<bool> IsPyTorchFile(const std::string& path);

// The tensors, by their names; the file stays open, and a tensor's values are
// read when they are asked for: those alone, whatever else lies in the storage.
// Reading is thread-safe.
//
// Trusts nothing. Errors name the path; beside RegularFile's: InvalidArgument
// for a file of before PyTorch 1.6, for a TorchScript archive, for big-endian
// values, and for what zip_directory.h, pickle_tree.h and state_dict.h refuse;
// DataLoss, of a tensor when it is read or verified, where a record is not as
// its checksum says.
absl::StatusOr<StoredTensors> OpenPyTorchFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_CORE_PYTORCH_FILE_PYTORCH_FILE_H_
