#include "datasets/tokens/number_width.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace tandem {
namespace {

// "MMIDIDX\0\0", the version as uint64, and the code of the numbers' type.
constexpr absl::string_view kMagic("MMIDIDX\0\0", 9);
constexpr size_t kCodeAt = kMagic.size() + sizeof(uint64_t);
constexpr char kInt32 = 4;
constexpr char kUint16 = 8;

constexpr size_t kFewestPairs = 64;
// Of a vocabulary of a million tokens.
constexpr uint16_t kMostUpperHalf = 15;
// Beyond any that is that small.
constexpr uint16_t kLeastLowerHalf = 4096;

}  // namespace

absl::StatusOr<int> TokenBytesByIndex(const std::string& path) {
  absl::string_view stem = path;
  if (!absl::ConsumeSuffix(&stem, ".bin")) return 0;
  const std::string index = absl::StrCat(stem, ".idx");
  std::ifstream file(index, std::ios::binary);
  std::string beginning(kCodeAt + 1, '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  if (!file || !absl::StartsWith(beginning, kMagic)) return 0;
  const char code = beginning[kCodeAt];
  if (code == kUint16) return 2;
  if (code == kInt32) return 4;
  return absl::InvalidArgumentError(absl::StrCat(
      index, " says that the numbers of ", path, " are of type ",
      static_cast<int>(code),
      " (Megatron-LM's codes), known are 8, uint16, and 4, int32"));
}

bool AreHalves(absl::Span<const uint16_t> numbers) {
  if (numbers.size() < 2 * kFewestPairs) return false;
  uint16_t most[2] = {0, 0};
  for (size_t i = 0; i < numbers.size(); ++i) {
    most[i % 2] = std::max(most[i % 2], numbers[i]);
  }
  if (most[1] == 0) return most[0] > 0;
  return most[1] <= kMostUpperHalf && most[0] >= kLeastLowerHalf;
}

}  // namespace tandem
