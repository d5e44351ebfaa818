#include "core/health/failure_note.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/text_fields.h"

namespace tandem {
namespace {

std::optional<FailureNote> DecodeOne(absl::string_view text) {
  const std::optional<int> kind = TakeNumber(&text);
  const std::optional<int> rank = TakeNumber(&text);
  if (!kind.has_value() || !rank.has_value()) return std::nullopt;
  if (*kind < 0 || *kind > static_cast<int>(FailureNote::Kind::kDied)) {
    return std::nullopt;
  }
  FailureNote note;
  note.kind = static_cast<FailureNote::Kind>(*kind);
  note.rank = *rank;
  for (std::string* each :
       {&note.group, &note.group_id, &note.operation, &note.text}) {
    const std::optional<absl::string_view> field = TakeField(&text);
    if (!field.has_value()) return std::nullopt;
    *each = std::string(*field);
  }
  return note;
}

}  // namespace

std::string FailureNote::ToString() const {
  switch (kind) {
    case Kind::kFailed:
      return absl::StrCat("rank ", rank, " failed in ", operation,
                          " of group \"", group, "\"");
    case Kind::kGaveUp:
      return absl::StrCat("rank ", rank, " gave up: ", text);
    case Kind::kDied:
      break;
  }
  return absl::StrCat("rank ", rank, " died: ", text);
}

std::string FailureNote::Encode() const {
  std::string fields;
  AppendNumber(static_cast<int>(kind), &fields);
  AppendNumber(rank, &fields);
  for (const std::string* each : {&group, &group_id, &operation, &text}) {
    AppendField(*each, &fields);
  }
  std::string note;
  AppendField(fields, &note);
  return note;
}

std::vector<FailureNote> DecodeFailureNotes(absl::string_view list) {
  std::vector<FailureNote> notes;
  while (const std::optional<absl::string_view> field = TakeField(&list)) {
    std::optional<FailureNote> note = DecodeOne(*field);
    if (!note.has_value()) break;
    notes.push_back(*std::move(note));
  }
  return notes;
}

}  // namespace tandem
