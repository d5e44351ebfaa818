#include "core/launch/dist_url.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::dist_url_test {
namespace {

using ::testing::HasSubstr;

TEST(DistUrlTest, ReadsEnvironment) {
  EXPECT_EQ(ParseDistUrl("env://")->kind, DistUrl::Kind::kEnvironment);
}

TEST(DistUrlTest, ReadsTcp) {
  const auto url = ParseDistUrl("tcp://node-1.site:29501");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->kind, DistUrl::Kind::kTcp);
  EXPECT_EQ(url->host, "node-1.site");
  EXPECT_EQ(url->port, 29501);
}

TEST(DistUrlTest, ReadsIpv6) {
  const auto url = ParseDistUrl("tcp://[fe80::1]:0");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "fe80::1");
  EXPECT_EQ(url->port, 0);
}

TEST(DistUrlTest, ReadsFile) {
  const auto url = ParseDistUrl("file:///tmp/a b");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->kind, DistUrl::Kind::kFile);
  EXPECT_EQ(url->path, "/tmp/a b");
}

TEST(DistUrlTest, ErrorsSayWhatWasGivenAndWhatIsExpected) {
  for (const char* url :
       {"", "env", "env://x", "tcp://", "tcp://host", "tcp://:1",
        "tcp://host:x", "tcp://host:65536", "tcp://[::1:5", "tcp://host:-1",
        "file://relative", "file:///", "http://host:1",
        "tcp://host:1?rank=0&world_size=2"}) {
    const absl::Status error = ParseDistUrl(url).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << url;
    EXPECT_THAT(error.message(), HasSubstr(url));
    EXPECT_THAT(error.message(), HasSubstr("expected env://, tcp://HOST:PORT"));
  }
}

}  // namespace
}  // namespace tandem::dist_url_test
