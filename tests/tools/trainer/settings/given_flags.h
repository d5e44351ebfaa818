// The program's flags as a test gives them. For tests.

#ifndef TANDEM_TESTS_TOOLS_TRAINER_SETTINGS_GIVEN_FLAGS_H_
#define TANDEM_TESTS_TOOLS_TRAINER_SETTINGS_GIVEN_FLAGS_H_

#include <string>

#include "absl/flags/reflection.h"

namespace tandem {

// Gives flags as one types them, "--pipe=2 --reproducible", and takes them back
// at its end. A flag that is unknown, or of another type, fails the test.
class GivenFlags {
 public:
  explicit GivenFlags(const std::string& flags);
  GivenFlags(const GivenFlags&) = delete;
  GivenFlags& operator=(const GivenFlags&) = delete;

 private:
  const absl::FlagSaver before_;
};

// The value of a flag, as text.
std::string FlagValue(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TESTS_TOOLS_TRAINER_SETTINGS_GIVEN_FLAGS_H_
