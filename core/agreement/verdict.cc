#include "core/agreement/verdict.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/text_fields.h"

namespace tandem {

std::string EncodeStatus(const absl::Status& status) {
  std::string text;
  AppendNumber(static_cast<int>(status.code()), &text);
  AppendField(status.message(), &text);
  return text;
}

absl::Status Verdict(const std::vector<std::string>& by_rank) {
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    absl::string_view text = by_rank[rank];
    const std::optional<int> code = TakeNumber(&text);
    const std::optional<absl::string_view> message = TakeField(&text);
    if (!code.has_value() || !message.has_value()) {
      return absl::InternalError(
          absl::StrCat("rank ", rank, " has told something else than whether ",
                       "it has succeeded"));
    }
    if (*code == 0) continue;
    return absl::Status(static_cast<absl::StatusCode>(*code),
                        by_rank.size() == 1
                            ? std::string(*message)
                            : absl::StrCat("rank ", rank, ": ", *message));
  }
  return absl::OkStatus();
}

}  // namespace tandem
