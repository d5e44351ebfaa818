#include "core/base/dtype_names.h"

#include <utility>

#include "absl/strings/str_join.h"

namespace tandem {
namespace {

struct NamedDtype {
  absl::string_view name;
  c10::ScalarType dtype;
};

constexpr NamedDtype kDtypes[] = {
    {"BOOL", c10::ScalarType::Bool},
    {"U8", c10::ScalarType::Byte},
    {"I8", c10::ScalarType::Char},
    {"I16", c10::ScalarType::Short},
    {"U16", c10::ScalarType::UInt16},
    {"I32", c10::ScalarType::Int},
    {"U32", c10::ScalarType::UInt32},
    {"I64", c10::ScalarType::Long},
    {"U64", c10::ScalarType::UInt64},
    {"F8_E4M3", c10::ScalarType::Float8_e4m3fn},
    {"F8_E5M2", c10::ScalarType::Float8_e5m2},
    {"F16", c10::ScalarType::Half},
    {"BF16", c10::ScalarType::BFloat16},
    {"F32", c10::ScalarType::Float},
    {"F64", c10::ScalarType::Double},
    {"C64", c10::ScalarType::ComplexFloat},
};

struct Spelling {
  absl::string_view short_name;
  absl::string_view long_name;
};

constexpr Spelling kSpellings[] = {{"fp32", "float32"},
                                   {"bf16", "bfloat16"},
                                   {"fp16", "float16"},
                                   {"fp64", "float64"}};

}  // namespace

absl::string_view DtypeName(c10::ScalarType dtype) {
  for (const NamedDtype& each : kDtypes) {
    if (each.dtype == dtype) return each.name;
  }
  return {};
}

absl::optional<c10::ScalarType> DtypeOfName(absl::string_view name) {
  for (const NamedDtype& each : kDtypes) {
    if (each.name == name) return each.dtype;
  }
  return absl::nullopt;
}

int BitsOfUnreadDtype(absl::string_view name) {
  constexpr std::pair<absl::string_view, int> kUnread[] = {
      {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
  for (const auto& [known, bits] : kUnread) {
    if (known == name) return bits;
  }
  return 0;
}

std::string KnownDtypeNames() {
  return absl::StrJoin(kDtypes, ", ",
                       [](std::string* out, const NamedDtype& each) {
                         out->append(each.name.data(), each.name.size());
                       });
}

std::string ShortDtypeName(absl::string_view name) {
  for (const Spelling& each : kSpellings) {
    if (each.long_name == name) return std::string(each.short_name);
  }
  return std::string(name);
}

std::string LongDtypeName(absl::string_view name) {
  for (const Spelling& each : kSpellings) {
    if (each.short_name == name) return std::string(each.long_name);
  }
  return std::string(name);
}

}  // namespace tandem
