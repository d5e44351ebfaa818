#include "core/base/random_bytes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tandem::random_bytes_test {
namespace {

TEST(RandomBytesTest, AsManyAsAskedForAndNoneTwice) {
  EXPECT_EQ(RandomBytes(0).value(), "");
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(RandomBytes(32).value());
  EXPECT_EQ(seen.size(), 100);
  EXPECT_EQ(seen.begin()->size(), 32);
  EXPECT_EQ(RandomBytes(256).value().size(), 256);
}

}  // namespace
}  // namespace tandem::random_bytes_test
