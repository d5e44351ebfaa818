// IDX: the array files of MNIST and its kin (yann.lecun.com/exdb/mnist).

#ifndef TANDEM_DATASETS_IDX_H_
#define TANDEM_DATASETS_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// An array of unsigned bytes, row-major.
struct IdxArray {
  std::vector<int64_t> sizes;
  std::string file;   // the whole file, header included
  int64_t begin = 0;  // where in `file` the array begins

  const uint8_t* data() const {
    return reinterpret_cast<const uint8_t*>(file.data()) + begin;
  }
};

// Reads an IDX file of unsigned bytes with `dimensions` dimensions, gzipped or
// not. A file that is not one (wrong magic), has another dtype or another
// number of dimensions, or holds fewer or more bytes than its sizes say, is an
// error that names the file, what was found and what was expected; so is what
// is no regular file. No more is held than the sizes in the header promise, nor
// than is there; arrays beyond 2 GiB are refused.
absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int dimensions);

}  // namespace tandem

#endif  // TANDEM_DATASETS_IDX_H_
