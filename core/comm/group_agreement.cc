#include "core/comm/group_agreement.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/agreement/agreement.h"
#include "core/base/status_macros.h"

namespace tandem {

absl::Status AgreeInGroup(const NamedValues& mine, absl::string_view what,
                          Communicator& group) {
  const auto purpose = [what] {
    return absl::StrCat("whether ranks have the same ", what);
  };
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> hashes,
      group.AllGatherString(ValuesFingerprint(mine), purpose));
  const bool same = std::adjacent_find(hashes.begin(), hashes.end(),
                                       std::not_equal_to<>()) == hashes.end();
  if (same) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          group.AllGatherString(EncodeValues(mine), purpose));
  std::vector<NamedValues> by_rank;
  std::vector<int> names;
  for (int r = 0; r < group.size(); ++r) {
    TANDEM_ASSIGN_OR_RETURN(by_rank.emplace_back(),
                            DecodeValues(texts[static_cast<size_t>(r)]));
    names.push_back(group.NameOf(r));
  }
  return CompareValues(by_rank, names, what);
}

absl::Status AgreeOnSuccess(const absl::Status& mine, absl::string_view what,
                            Communicator& group) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          group.AllGatherString(EncodeStatus(mine), [what] {
                            return absl::StrCat("whether all ranks have ",
                                                what);
                          }));
  return Verdict(all);
}

}  // namespace tandem
