// The program's flags as a test gives them. For tests.

#ifndef TANDEM_TESTS_TOOLS_TRAINER_SETTINGS_GIVEN_FLAGS_H_
#define TANDEM_TESTS_TOOLS_TRAINER_SETTINGS_GIVEN_FLAGS_H_

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tandem {

// Gives flags as one types them, "--pipe=2 --reproducible", and takes them back
// at its end. A flag that is unknown, or of another type, fails the test.
class GivenFlags {
 public:
  explicit GivenFlags(const std::string& flags) {
    for (const std::string& each : std::vector<std::string>(
             absl::StrSplit(flags, ' ', absl::SkipEmpty()))) {
      const std::pair<std::string, std::string> flag = absl::StrSplit(
          absl::StripPrefix(each, "--"), absl::MaxSplits('=', 1));
      const bool is_switch = each.find('=') == std::string::npos;
      absl::CommandLineFlag* const found =
          absl::FindCommandLineFlag(flag.first);
      std::string error = "it is unknown";
      EXPECT_TRUE(found != nullptr &&
                  found->ParseFrom(is_switch ? "true" : flag.second, &error))
          << each << ": " << error;
    }
  }
  GivenFlags(const GivenFlags&) = delete;
  GivenFlags& operator=(const GivenFlags&) = delete;

 private:
  const absl::FlagSaver before_;
};

// The value of a flag, as text.
inline std::string FlagValue(const std::string& name) {
  const absl::CommandLineFlag* const found = absl::FindCommandLineFlag(name);
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? "" : found->CurrentValue();
}

}  // namespace tandem

#endif  // TANDEM_TESTS_TOOLS_TRAINER_SETTINGS_GIVEN_FLAGS_H_
