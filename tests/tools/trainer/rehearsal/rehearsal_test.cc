#include "tools/trainer/rehearsal/rehearsal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "core/device/memory_category.h"

namespace tandem {
namespace {

TrainOptions OnSim() {
  TrainOptions options;
  options.devices.device = "sim";
  return options;
}

// 70.6 billion parameters, of 4 bytes each, as are gradients; Adam's state of
// 8.
TEST(RehearsalTest, Llama70bIsCutAndRehearsedInNoMemory) {
  TrainOptions options = OnSim();
  options.model = "llama-3-70b";
  options.dataset = "synthetic_tokens";
  options.synthetic_shape = {1024};
  options.synthetic_classes = 128256;
  options.synthetic_samples = 64;
  options.optimizer = "adamw";
  options.batch_size = 8;
  options.devices.devices_per_rank = 8;
  options.strategy = "pipeline";
  options.pipeline.microbatches = 8;
  options.kernels = "fixed";
  options.peak_tflops = 989;
  RehearsalSettings settings;
  settings.fake_weights = true;
  const absl::StatusOr<RehearsedJob> job =
      RehearseJob(settings, options, Launch());
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->devices.size(), 8u);
  int64_t parameters = 0;
  int64_t optimizer = 0;
  double flops = 0;
  double seconds = 0;
  for (const RehearsedDevice& each : job->devices) {
    const auto of = [&](MemoryCategory category) {
      return each.peak.by_category[static_cast<size_t>(category)];
    };
    std::printf("%s %lld bytes\n", each.name.c_str(),
                static_cast<long long>(each.peak.total));
    parameters += of(MemoryCategory::kParameters);
    optimizer += of(MemoryCategory::kOptimizer);
    flops += each.work.forward.flops + each.work.backward.flops;
    seconds = std::max(seconds,
                       each.work.forward.seconds + each.work.backward.seconds);
  }
  EXPECT_NEAR(static_cast<double>(parameters), 4 * 70.55e9, 4e9);
  EXPECT_NEAR(static_cast<double>(optimizer), 8 * 70.55e9, 8e9);
  // 6 a parameter and token, but for the embedding's, and attention's own.
  const double tokens = 8 * 1024;
  EXPECT_GT(flops, 6 * 69e9 * tokens);
  EXPECT_LT(flops, 6 * 75e9 * tokens);
  EXPECT_GE(job->step, seconds);
  EXPECT_GT(job->bubble, 0);
  rusage usage{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  std::printf("process: %ld KiB\n", usage.ru_maxrss);
#ifdef __SANITIZE_ADDRESS__  // which has memory of its own
  EXPECT_LT(usage.ru_maxrss, 2 << 20);
#else
  EXPECT_LT(usage.ru_maxrss, 1 << 20);
#endif
}

}  // namespace
}  // namespace tandem
