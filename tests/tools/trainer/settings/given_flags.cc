#include "tests/tools/trainer/settings/given_flags.h"

#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"

namespace tandem {

GivenFlags::GivenFlags(const std::string& flags) {
  for (const std::string& each : std::vector<std::string>(
           absl::StrSplit(flags, ' ', absl::SkipEmpty()))) {
    const std::pair<std::string, std::string> flag =
        absl::StrSplit(absl::StripPrefix(each, "--"), absl::MaxSplits('=', 1));
    const bool is_switch = each.find('=') == std::string::npos;
    absl::CommandLineFlag* const found = absl::FindCommandLineFlag(flag.first);
    std::string error = "it is unknown";
    EXPECT_TRUE(found != nullptr &&
                found->ParseFrom(is_switch ? "true" : flag.second, &error))
        << each << ": " << error;
  }
}

std::string FlagValue(const std::string& name) {
  const absl::CommandLineFlag* const found = absl::FindCommandLineFlag(name);
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? "" : found->CurrentValue();
}

}  // namespace tandem
