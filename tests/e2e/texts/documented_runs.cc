#include "tests/e2e/texts/documented_runs.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>

#include "absl/strings/str_cat.h"

namespace tandem {

std::string Runfile(const std::string& path) {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"), "/",
                      path);
}

ProgramResult RunIn(const std::string& place, DocumentedCommand command,
                    const std::vector<std::string>& more) {
  ProgramOptions options;
  options.environment["BUILD_WORKING_DIRECTORY"] = place;  // as Bazel says it
  options.timeout = std::chrono::seconds(600);
  command.arguments.insert(command.arguments.end(), more.begin(), more.end());
  ProgramResult result =
      RunProgram(command.program, command.arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  return result;
}

}  // namespace tandem
