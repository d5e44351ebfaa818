#include "core/memory/memory_use.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/byte_size.h"

namespace tandem {

std::string DescribeUse(const MemoryUse& use) {
  std::vector<std::pair<int64_t, std::string>> parts;
  for (int i = 0; i < kMemoryCategories; ++i) {
    const int64_t bytes = use.by_category[i];
    if (bytes == 0) continue;
    parts.emplace_back(
        bytes, absl::StrCat(MemoryCategoryName(static_cast<MemoryCategory>(i)),
                            " ", FormatBytes(bytes)));
  }
  if (parts.empty()) return "nothing";
  std::sort(parts.rbegin(), parts.rend());
  return absl::StrJoin(parts, ", ", [](std::string* out, const auto& part) {
    out->append(part.second);
  });
}

}  // namespace tandem
