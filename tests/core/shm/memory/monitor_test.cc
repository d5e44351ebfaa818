#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "core/shm/group.h"
#include "core/shm/memory/connect.h"
#include "core/shm/memory/segment.h"

namespace tandem {
namespace {

// The state after `ulimit -n`.
TEST(ShmMonitorTest, WithoutDescriptorsThereIsAnError) {
  auto memory = ShmSegment::NewMemory(1);
  ASSERT_TRUE(memory.ok()) << memory.status();
  auto segment = ShmSegment::Map(*std::move(memory), 1);
  ASSERT_TRUE(segment.ok()) << segment.status();
  const std::vector<ShmPeer> peers(1);
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next = dup(STDERR_FILENO);  // the lowest that is free
  close(next);
  rlimit limit = old;
  limit.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const absl::Status refused = ShmMonitor::Create(&*segment, &peers).status();
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr("Too many open files"));
  EXPECT_TRUE(ShmMonitor::Create(&*segment, &peers).ok());
}

}  // namespace
}  // namespace tandem
