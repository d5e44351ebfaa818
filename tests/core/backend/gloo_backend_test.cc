// Ranks of several hosts that would bind what no other host reaches.

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "core/backend/backend.h"
#include "core/backend/communicator_options.h"
#include "core/backend/host_identity.h"
#include "core/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::gloo_backend_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostIdentityTest, ContainersOfOneNetworkShareItsLoopback) {
  EXPECT_TRUE(SharesLoopback("a boot 4:1", "a boot 4:1"));
  EXPECT_TRUE(SharesLoopback("a boot 4:1", "b boot 4:1"));
  EXPECT_FALSE(SharesLoopback("a boot 4:1", "a boot 4:2"));
  EXPECT_FALSE(SharesLoopback("a boot 4:1", "b other 4:1"));
  EXPECT_TRUE(SharesLoopback("a", "b"));
}

absl::Status JoinOverHosts(const std::string& backend,
                           const std::string& interface) {
  GroupPlace place;
  place.store = NewHashStore(std::chrono::seconds(30));
  place.hosts = {HostIdentity(), "other boot 0:0"};
  place.name = "group";
  place.job = place.store;
  CommunicatorOptions options;
  options.backend = backend;
  options.interface = interface;
  options.all_local = false;
  options.timeout = std::chrono::seconds(30);
  return MakeProcessGroup(place, options).status();
}

TEST(GlooBackendTest, LoopbackBetweenHostsIsRefusedBeforeAnybodyWaits) {
  for (const char* backend : {"gloo", "shm"}) {
    for (const char* place : {"lo", "127.0.0.1", "::1"}) {
      const absl::Status status = JoinOverHosts(backend, place);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("is loopback"), HasSubstr("--interface")));
    }
  }
}

}  // namespace
}  // namespace tandem::gloo_backend_test
