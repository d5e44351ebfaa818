#include "core/program/exit_code.h"

#include <cstdlib>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(ExitCode, WhatTheUserCanMendIsRefusedAndTheRestFailed) {
  EXPECT_EQ(StatusExitCode(absl::OkStatus()), 0);
  for (const absl::Status& refused :
       {absl::InvalidArgumentError("a flag"), absl::NotFoundError("a path"),
        absl::FailedPreconditionError("two flags"),
        absl::UnimplementedError("a model")}) {
    EXPECT_EQ(StatusExitCode(refused), kExitRefused) << refused;
  }
  for (const absl::Status& failed :
       {absl::DataLossError("damaged"), absl::ResourceExhaustedError("full"),
        absl::UnavailableError("a disk"), absl::InternalError("a mistake"),
        absl::PermissionDeniedError("a folder"),
        absl::OutOfRangeError("diverged")}) {
    EXPECT_EQ(StatusExitCode(failed), kExitFailed) << failed;
  }
}

TEST(ExitCode, OfANamedPathWhatIsTheUsersToMendIsRefused) {
  for (const absl::Status& refused : {absl::PermissionDeniedError("a folder"),
                                      absl::AlreadyExistsError("a file")}) {
    const absl::Status status = RefusedIfMendable(refused);
    EXPECT_EQ(StatusExitCode(status), kExitRefused) << refused;
    EXPECT_EQ(status.message(), refused.message());
  }
  for (const absl::Status& kept :
       {absl::OkStatus(), absl::NotFoundError("a folder"),
        absl::ResourceExhaustedError("full"), absl::AbortedError("stale"),
        absl::UnknownError("input/output")}) {
    EXPECT_EQ(RefusedIfMendable(kept), kept);
  }
}

TEST(ExitCodeDeathTest, AnErrorIsALineThatNoTerminalObeys) {
  EXPECT_EXIT(std::exit(Conclude("train", absl::OkStatus())),
              testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(
      std::exit(Conclude("inspect", absl::NotFoundError("no \x1b[2Jtensor"))),
      testing::ExitedWithCode(kExitRefused), "^inspect: no .x1b.2Jtensor\n$");
}

}  // namespace
}  // namespace tandem
