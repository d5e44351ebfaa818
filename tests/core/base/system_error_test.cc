#include "core/base/system_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace tandem::system_error_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SystemErrorTest, TheLimitOnOpenFilesIsNamed) {
  EXPECT_THAT(SystemError(EMFILE, "open a").message(),
              AllOf(HasSubstr("open a"), HasSubstr("ulimit -n")));
  EXPECT_THAT(SystemError(ENFILE, "open a").message(),
              HasSubstr("fs.file-max"));
  EXPECT_THAT(SystemError(ENOENT, "open a").message(),
              AllOf(HasSubstr("open a"), Not(HasSubstr("limit"))));
}

TEST(StartErrorTest, TheLimitsOnProcessesAreNamed) {
  EXPECT_THAT(StartError(EAGAIN, "fork failed").message(),
              AllOf(HasSubstr("fork failed"), HasSubstr("ulimit -u"),
                    HasSubstr("pids.max")));
  EXPECT_THAT(StartError(ENOMEM, "fork failed").message(),
              AllOf(HasSubstr("fork failed"), Not(HasSubstr("limit"))));
  EXPECT_THAT(StartError(EMFILE, "fork failed").message(),
              HasSubstr("ulimit -n"));
}

}  // namespace
}  // namespace tandem::system_error_test
