// Ranks as threads, on hosts that are made up, each with a clock of its own.

#include "core/comm/host_clocks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/status_macros.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"

namespace tandem::host_clocks_test {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

struct Host {
  std::string identity;
  nanoseconds ahead{0};  // of the real clock
};

HostClock ClockOf(const Host& host) {
  return {host.identity, host.identity, [ahead = host.ahead] {
            return std::chrono::steady_clock::now() + ahead;
          }};
}

// What each rank comes to, by rank.
std::vector<std::vector<ClockOffset>> OffsetsOn(
    const std::vector<Host>& hosts) {
  std::vector<std::vector<ClockOffset>> all(hosts.size());
  ExpectOk(RunThreadRanks(
      static_cast<int>(hosts.size()), [&](Communicator& world) -> absl::Status {
        const auto rank = static_cast<size_t>(world.rank());
        TANDEM_ASSIGN_OR_RETURN(all[rank],
                                ClockOffsets(world, ClockOf(hosts[rank])));
        return absl::OkStatus();
      }));
  return all;
}

TEST(HostClocksTest, OffsetsAreThoseOfTheClocks) {
  const std::vector<Host> hosts = {{"a", hours(3)},
                                   {"b", hours(1)},
                                   {"a", hours(3)},
                                   {"c", hours(300)},
                                   {"b", hours(1)}};
  const std::vector<nanoseconds> truth = {hours(0), hours(2), hours(0),
                                          hours(-297), hours(2)};
  const auto all = OffsetsOn(hosts);
  for (const std::vector<ClockOffset>& of_rank : all) {
    ASSERT_EQ(of_rank.size(), hosts.size());
    for (size_t i = 0; i < hosts.size(); ++i) {
      const nanoseconds error = of_rank[i].offset - truth[i];
      EXPECT_LE(error < nanoseconds(0) ? -error : error, of_rank[i].uncertainty)
          << "rank " << i;
      EXPECT_LT(of_rank[i].uncertainty, std::chrono::seconds(10));
      EXPECT_EQ(of_rank[i].offset, all[0][i].offset);
    }
    // One rank speaks for its host.
    EXPECT_EQ(of_rank[1].offset, of_rank[4].offset);
    EXPECT_GT(of_rank[1].uncertainty, nanoseconds(0));
  }
}

TEST(HostClocksTest, RanksOfOneHostHaveOneClock) {
  for (const std::vector<ClockOffset>& of_rank :
       OffsetsOn({{"a", hours(1)}, {"a", hours(1)}, {"a", hours(1)}})) {
    for (const ClockOffset& each : of_rank) {
      EXPECT_EQ(each.offset, nanoseconds(0));
      EXPECT_EQ(each.uncertainty, nanoseconds(0));
    }
  }
  EXPECT_EQ(OffsetsOn({{"a", hours(1)}})[0].size(), 1u);
}

TEST(HostClocksTest, ThisHostsClockIsTheSteadyOne) {
  const HostClock clock = HostClock::OfThisHost();
  EXPECT_FALSE(clock.host.empty());
  EXPECT_FALSE(clock.identity.empty());
  EXPECT_EQ(clock.identity, HostClock::OfThisHost().identity);
  const auto before = std::chrono::steady_clock::now();
  const auto now = clock.now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, std::chrono::steady_clock::now());
}

}  // namespace
}  // namespace tandem::host_clocks_test
