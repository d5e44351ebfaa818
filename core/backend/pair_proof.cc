#include "core/backend/pair_proof.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/random_bytes.h"
#include "core/base/status_macros.h"
#include "core/digest/hmac_sha256.h"

namespace tandem {
namespace {

constexpr char kKey[] = "pair_proof";

// Rank 0's, which makes it.
absl::StatusOr<std::string> KeyOf(int rank, c10d::Store& store) {
  if (rank != 0) return store.get_to_str(kKey);
  TANDEM_ASSIGN_OR_RETURN(const std::string key, RandomBytes(32));
  store.set(kKey, key);
  return key;
}

std::string Code(const HmacSha256& hmac, int from, int to) {
  return hmac.Of({absl::StrCat(from, " to ", to)});
}

char* PlaceOf(const at::Tensor& codes, int rank) {
  return static_cast<char*>(codes.data_ptr()) +
         static_cast<size_t>(rank) * kCodeBytes;
}

}  // namespace

absl::Status ProvePairs(c10d::Backend& group, c10d::Store& store) {
  const int rank = group.getRank();
  const int size = group.getSize();
  if (size == 1) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::string key, KeyOf(rank, store));
  const HmacSha256 hmac(key);
  const int64_t bytes = size * static_cast<int64_t>(kCodeBytes);
  at::Tensor mine = at::empty({bytes}, at::kByte);
  at::Tensor theirs = at::empty({bytes}, at::kByte);
  for (int r = 0; r < size; ++r) {
    std::memcpy(PlaceOf(mine, r), Code(hmac, rank, r).data(), kCodeBytes);
  }
  std::vector<int64_t> equal;
  group.all_to_all_single(theirs, mine, equal, equal)->wait();
  for (int r = 0; r < size; ++r) {
    const absl::string_view came(PlaceOf(theirs, r), kCodeBytes);
    if (SameCode(came, Code(hmac, r, rank))) continue;
    return absl::UnavailableError(absl::StrCat(
        "the connection with rank ", r,
        " of the group is somebody else's, who "
        "came to a Gloo port before that rank did (docs/security.md)"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
