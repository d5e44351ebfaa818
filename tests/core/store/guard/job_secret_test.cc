#include "core/store/guard/job_secret.h"

#include <gtest/gtest.h>

namespace tandem::job_secret_test {
namespace {

TEST(JobSecretTest, ThereIsNoneUntilOneIsSet) {
  EXPECT_EQ(JobSecret(), "");
  SetJobSecret("secret");
  EXPECT_EQ(JobSecret(), "secret");
  SetJobSecret("");
  EXPECT_EQ(JobSecret(), "");
}

}  // namespace
}  // namespace tandem::job_secret_test
