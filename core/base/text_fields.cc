#include "core/base/text_fields.h"

#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem {

namespace {

template <typename Number>
std::optional<Number> TakeAs(absl::string_view* text) {
  absl::string_view rest = *text;
  const std::optional<absl::string_view> field = TakeField(&rest);
  Number number = 0;
  if (!field.has_value() || !absl::SimpleAtoi(*field, &number)) {
    return std::nullopt;
  }
  *text = rest;
  return number;
}

}  // namespace

void AppendField(absl::string_view field, std::string* text) {
  absl::StrAppend(text, field.size(), ":", field);
}

void AppendNumber(int64_t number, std::string* text) {
  AppendField(absl::StrCat(number), text);
}

std::optional<absl::string_view> TakeField(absl::string_view* text) {
  const size_t colon = text->find(':');
  size_t size = 0;
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(text->substr(0, colon), &size) ||
      size > text->size() - colon - 1) {
    return std::nullopt;
  }
  const absl::string_view field = text->substr(colon + 1, size);
  text->remove_prefix(colon + 1 + size);
  return field;
}

std::optional<int> TakeNumber(absl::string_view* text) {
  return TakeAs<int>(text);
}

std::optional<int64_t> TakeInt64(absl::string_view* text) {
  return TakeAs<int64_t>(text);
}

}  // namespace tandem
