// NPY file: an array as numpy.save writes it.

#ifndef TANDEM_DATASETS_NPY_FILE_H_
#define TANDEM_DATASETS_NPY_FILE_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/files/regular_file.h"

namespace tandem {

// What stands before an array's values.
struct NpyHeader {
  // at::kByte, kInt, kLong, kHalf, kFloat or kDouble.
  c10::ScalarType dtype = c10::ScalarType::Byte;
  // The product of the sizes that are not 0 is below 2^62.
  std::vector<int64_t> shape;
};

// Reads the dictionary of a header: "{'descr': '<f4', 'fortran_order': False,
// 'shape': (3, 4), }". InvalidArgument, which says what to do, for what numpy
// writes and this does not read: other dtypes (u1, i4, i8, f2, f4 and f8 are
// read), big-endian numbers, Fortran's order, pickled objects, fields; DataLoss
// for what is no such dictionary.
absl::StatusOr<NpyHeader> ReadNpyHeader(absl::string_view dictionary);

// An array in a file of the NPY format's version 1, 2 or 3, of which nothing is
// in memory: pieces are read when they are asked for. (It is not mapped into
// memory: a mapped file that becomes shorter ends the process.) Thread-safe.
class NpyFile {
 public:
  // The errors of ReadNpyHeader, with the path; DataLoss for a file that is no
  // NPY file, or whose size is not what its header says; else those of
  // RegularFile.
  static absl::StatusOr<NpyFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  c10::ScalarType dtype() const { return header_.dtype; }
  const std::vector<int64_t>& shape() const { return header_.shape; }
  int64_t numel() const { return numel_; }

  // Elements `first` to first + count - 1, in C's order, converted to
  // `Element`, float or int64_t. Requires that there are.
  template <typename Element>
  absl::Status Read(int64_t first, int64_t count, Element* to) const;

  // What tells it from other files: a checksum of its header and of some values
  // at the beginning, in the middle and at the end.
  absl::StatusOr<uint32_t> Digest() const;

 private:
  NpyFile(RegularFile file, NpyHeader header, int64_t begin);

  RegularFile file_;
  NpyHeader header_;
  int64_t begin_ = 0;  // bytes before the first element
  int64_t numel_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_DATASETS_NPY_FILE_H_
