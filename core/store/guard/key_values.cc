#include "core/store/guard/key_values.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"

namespace tandem {
namespace {

using Fields = std::vector<std::string>;

// Nothing for what is no list of fields.
std::optional<Fields> Decode(absl::string_view text) {
  Fields fields;
  while (!text.empty()) {
    const std::optional<absl::string_view> field = TakeField(&text);
    if (!field.has_value()) return std::nullopt;
    fields.emplace_back(*field);
  }
  return fields;
}

absl::StatusOr<Fields> Set(const Fields& args, KeyValues* table) {
  if (args.size() % 2 != 0) return absl::InvalidArgumentError("a key alone");
  for (size_t i = 0; i < args.size(); i += 2) (*table)[args[i]] = args[i + 1];
  return Fields{};
}

absl::StatusOr<Fields> Get(const Fields& args, KeyValues* table) {
  Fields values;
  for (const std::string& key : args) {
    const auto at = table->find(key);
    if (at == table->end()) {
      return absl::NotFoundError(absl::StrCat("no key ", key));
    }
    values.push_back(at->second);
  }
  return values;
}

absl::StatusOr<Fields> Add(const Fields& args, KeyValues* table) {
  const auto at = table->find(args[0]);
  int64_t sum = 0;
  int64_t more = 0;
  if ((at != table->end() && !absl::SimpleAtoi(at->second, &sum)) ||
      !absl::SimpleAtoi(args[1], &more) ||
      __builtin_add_overflow(sum, more, &sum)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot add '", args[1], "' to ", args[0]));
  }
  (*table)[args[0]] = absl::StrCat(sum);
  return Fields{absl::StrCat(sum)};
}

absl::StatusOr<Fields> Append(const Fields& args, KeyValues* table) {
  (*table)[args[0]].append(args[1]);
  return Fields{};
}

absl::StatusOr<Fields> Compare(const Fields& args, KeyValues* table) {
  const auto at = table->find(args[0]);
  if (at == table->end()) {
    if (!args[1].empty()) return Fields{args[1]};
    return Fields{(*table)[args[0]] = args[2]};
  }
  if (at->second == args[1]) at->second = args[2];
  return Fields{at->second};
}

absl::StatusOr<Fields> Check(const Fields& args, KeyValues* table) {
  const bool all = std::all_of(
      args.begin(), args.end(),
      [&](const std::string& key) { return table->count(key) > 0; });
  return Fields{all ? "1" : "0"};
}

absl::StatusOr<Fields> Delete(const Fields& args, KeyValues* table) {
  return Fields{absl::StrCat(table->erase(args[0]))};
}

absl::StatusOr<Fields> Count(const Fields&, KeyValues* table) {
  return Fields{absl::StrCat(table->size())};
}

struct Operation {
  absl::string_view name;
  size_t least_args;
  size_t most_args;
  absl::StatusOr<Fields> (*run)(const Fields& args, KeyValues* table);
};

constexpr size_t kAny = std::numeric_limits<size_t>::max();
constexpr Operation kOperations[] = {
    {"set", 2, kAny, &Set},      {"get", 0, kAny, &Get},
    {"add", 2, 2, &Add},         {"append", 2, 2, &Append},
    {"compare", 3, 3, &Compare}, {"check", 0, kAny, &Check},
    {"delete", 1, 1, &Delete},   {"count", 0, 0, &Count},
};

absl::StatusOr<Fields> Run(absl::string_view request, KeyValues* table) {
  std::optional<Fields> fields = Decode(request);
  if (!fields.has_value() || fields->empty()) {
    return absl::InvalidArgumentError("not a request");
  }
  const std::string name = fields->front();
  fields->erase(fields->begin());
  for (const Operation& each : kOperations) {
    if (each.name != name || fields->size() < each.least_args ||
        fields->size() > each.most_args) {
      continue;
    }
    return each.run(*fields, table);
  }
  return absl::InvalidArgumentError("not a request");
}

}  // namespace

std::string AnswerRequest(absl::string_view request, KeyValues* table) {
  const absl::StatusOr<Fields> values = Run(request, table);
  std::string answer;
  AppendField(values.ok() ? "ok" : "error", &answer);
  if (!values.ok()) {
    AppendField(values.status().message(), &answer);
    return answer;
  }
  return absl::StrCat(answer, EncodeRequest(*values));
}

std::string EncodeRequest(const std::vector<std::string>& fields) {
  std::string request;
  for (const std::string& field : fields) AppendField(field, &request);
  return request;
}

absl::StatusOr<std::vector<std::string>> DecodeAnswer(
    absl::string_view answer) {
  std::optional<Fields> fields = Decode(answer);
  if (!fields.has_value() || fields->empty()) {
    return absl::InternalError("the store's server answers something else");
  }
  if (fields->front() != "ok") {
    return absl::InternalError(
        absl::StrCat("the store's server: ", fields->back()));
  }
  fields->erase(fields->begin());
  return *std::move(fields);
}

}  // namespace tandem
