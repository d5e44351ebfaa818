// Resolved launches, for tests: from environments and flags, or refused.

#ifndef TANDEM_TESTS_CORE_LAUNCH_RESOLVED_LAUNCHES_H_
#define TANDEM_TESTS_CORE_LAUNCH_RESOLVED_LAUNCHES_H_

#include <fstream>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/launch/launch.h"
#include "core/launch/resolve_launch.h"
#include "gtest/gtest.h"

namespace tandem {

// "3/4 1/2 1/2" for rank 3 of 4, local rank 1 of 2, node 1 of 2.
inline std::string Place(const Launch& launch) {
  return absl::StrCat(launch.rank, "/", launch.world_size, " ",
                      launch.local_rank, "/", launch.local_world_size, " ",
                      launch.node_rank, "/", launch.nnodes);
}

inline std::string Address(const Launch& launch) {
  return absl::StrCat(launch.rendezvous.host, ":", launch.rendezvous.port);
}

// What a launcher, or Kubernetes' operator, once set: env/NAME.env.
inline Environment Captured(const std::string& name) {
  std::ifstream file(absl::StrCat("tests/core/launch/env/", name, ".env"));
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  const auto env = Environment::Parse(text.str());
  EXPECT_TRUE(env.ok()) << env.status();
  return *env;
}

inline LaunchPlan Resolve(const Environment& env,
                          const LaunchSettings& flags = {}) {
  const auto plan = ResolveLaunch(flags, env);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : LaunchPlan{};
}

// Why it is refused.
inline std::string Error(const Environment& env,
                         const LaunchSettings& flags = {}) {
  const absl::Status error = ResolveLaunch(flags, env).status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error;
  return std::string(error.message());
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_LAUNCH_RESOLVED_LAUNCHES_H_
