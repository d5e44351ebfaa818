#include "tests/e2e/network_hosts/network_hosts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/process_testing.h"
#include "tests/e2e/network_hosts/own_namespaces.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class NetworkHostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.why_not().empty()) GTEST_SKIP() << hosts_.why_not();
  }

  ProgramResult Run(int host, const std::string& command) {
    return hosts_.Start(host, "/bin/sh", {"-c", command})->Wait();
  }
  // By name.
  bool Reaches(int from, int to, const std::string& seconds = "1") {
    return Run(from, "timeout " + seconds + " bash -c '> /dev/tcp/" +
                         hosts_.Name(to) + "/9' 2>&1 | grep -q refused")
               .exit_code == 0;
  }
  // A host that asked in vain for another's hardware address asks again a
  // second later.
  bool WillReach(int from, int to) {
    return Eventually([&] { return Reaches(from, to, "10"); });
  }

  NetworkHosts hosts_{3};
};

TEST_F(NetworkHostsTest, EachHasItsNameItsAddressAndItsLoopback) {
  for (int host = 0; host < 3; ++host) {
    EXPECT_EQ(Run(host, "hostname").out, hosts_.Name(host) + "\n");
    EXPECT_THAT(Run(host, "PATH=$PATH:/usr/sbin:/sbin ip -4 addr").out,
                HasSubstr("inet " + hosts_.Address(host) + "/24"));
    EXPECT_TRUE(WillReach(host, host));
  }
}

TEST_F(NetworkHostsTest, ALinkIsDroppedCutAndMended) {
  EXPECT_TRUE(WillReach(0, 1));
  hosts_.Drop(1);
  EXPECT_FALSE(Reaches(0, 1));
  EXPECT_TRUE(WillReach(0, 2));
  hosts_.Mend(1);
  EXPECT_TRUE(WillReach(0, 1));
  hosts_.Cut(1);
  EXPECT_FALSE(Reaches(2, 1));
  hosts_.Mend(1);
  EXPECT_TRUE(WillReach(2, 1));
}

TEST_F(NetworkHostsTest, AHostDiesWithItsProcessesAlone) {
  const auto here = hosts_.Start(0, "/bin/sleep", {"100"});
  const auto there = hosts_.Start(1, "/bin/sh", {"-c", "sleep 100 & sleep 99"});
  ASSERT_TRUE(Eventually([&] {
    return hosts_.Processes(0).size() >= 1 && hosts_.Processes(1).size() >= 3;
  }));
  hosts_.Kill(1);
  EXPECT_EQ(there->Wait().exit_code, 128 + 9);
  EXPECT_THAT(hosts_.Processes(1), IsEmpty());
  EXPECT_THAT(hosts_.Processes(0), SizeIs(1));
}

TEST(OwnNamespacesTest, MemoryIsFullAtItsSize) {
  const std::string why_not = TakeOwnNamespaces();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const std::string folder = NewFolder("memory");
  ASSERT_EQ(MountMemory(folder, 64 << 10), "");
  EXPECT_TRUE(Shell("head -c 60K /dev/zero > " + folder + "/fits"));
  EXPECT_FALSE(Shell("head -c 60K /dev/zero > " + folder + "/more"));
}

}  // namespace
}  // namespace tandem
