#include "datasets/idx.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "datasets/gunzip.h"

namespace tandem {
namespace {

constexpr int64_t kMaxBytes = int64_t{2} << 30;
constexpr int kUnsignedByte = 0x08;
constexpr int64_t kMagicBytes = 4;  // 0, 0, dtype, number of dimensions
constexpr int64_t kSizeBytes = 4;   // a big-endian number

uint8_t ByteAt(const std::string& file, int64_t offset) {
  return static_cast<uint8_t>(file[offset]);
}

int64_t SizeAt(const std::string& file, int64_t offset) {
  int64_t size = 0;
  for (int i = 0; i < kSizeBytes; ++i) {
    size = size << 8 | ByteAt(file, offset + i);
  }
  return size;
}

absl::Status CheckMagic(const std::string& path, const std::string& file,
                        int dimensions) {
  const std::string first_bytes = file.substr(0, kMagicBytes);
  if (first_bytes.size() < kMagicBytes || file[0] != 0 || file[1] != 0) {
    return absl::DataLossError(
        absl::StrCat(path, ": not an IDX file: it begins with bytes '",
                     absl::BytesToHexString(first_bytes), "', expected '00000",
                     kUnsignedByte, "0", dimensions, "'"));
  }
  if (ByteAt(file, 2) != kUnsignedByte) {
    return absl::DataLossError(absl::StrCat(path, ": IDX dtype 0x",
                                            absl::Hex(ByteAt(file, 2)),
                                            ", expected 0x8 (unsigned bytes)"));
  }
  if (ByteAt(file, 3) != dimensions) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", ByteAt(file, 3), " dimensions, expected ",
                     dimensions, ": are images and labels confused?"));
  }
  return absl::OkStatus();
}

// The sizes multiplied, or a number above any file's length.
int64_t Product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (size == 0) return 0;
    product = product > kMaxBytes ? product : product * size;
  }
  return product;
}

// `found`: bytes behind the header, of which there may be more (`at_least`).
absl::Status CheckLength(const std::string& path, const IdxArray& array,
                         int64_t expected, int64_t found, bool at_least) {
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path, ": ", found < expected ? "truncated" : "too long",
                   ": ", found, at_least ? " bytes or more" : " bytes",
                   " behind the header, but its sizes [",
                   absl::StrJoin(array.sizes, ", "), "] need ",
                   expected > kMaxBytes ? absl::StrCat("more than ", kMaxBytes)
                                        : absl::StrCat(expected),
                   "; fetch it again"));
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int dimensions) {
  TANDEM_ASSIGN_OR_RETURN(UnpackedFile file, UnpackedFile::Open(path));
  IdxArray array;
  array.begin = kMagicBytes + dimensions * kSizeBytes;
  TANDEM_RETURN_IF_ERROR(file.Read(array.begin, &array.file));
  TANDEM_RETURN_IF_ERROR(CheckMagic(path, array.file, dimensions));
  const auto length = static_cast<int64_t>(array.file.size());
  if (length < array.begin) {
    return absl::DataLossError(absl::StrCat(path, ": truncated: ", length,
                                            " bytes, expected a header of ",
                                            array.begin, "; fetch it again"));
  }
  for (int i = 0; i < dimensions; ++i) {
    array.sizes.push_back(SizeAt(array.file, kMagicBytes + i * kSizeBytes));
  }
  const int64_t expected = Product(array.sizes);
  if (file.length().has_value()) {
    TANDEM_RETURN_IF_ERROR(CheckLength(path, array, expected,
                                       *file.length() - array.begin,
                                       /*at_least=*/false));
  }
  if (expected > kMaxBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": sizes [", absl::StrJoin(array.sizes, ", "),
        "] need more than ", kMaxBytes, " bytes; not a file of this kind"));
  }
  // One byte more shows a file that is too long, however long it is.
  const int64_t most = expected + 1;
  TANDEM_RETURN_IF_ERROR(file.Read(most, &array.file));
  const int64_t found = static_cast<int64_t>(array.file.size()) - array.begin;
  TANDEM_RETURN_IF_ERROR(
      CheckLength(path, array, expected, found, /*at_least=*/found == most));
  return array;
}

}  // namespace tandem
