// What lines say of a job's course and speed: gradient norms, FLOP/s, MFU.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<double> NormsOf(const Flags& more, ProgramResult* program = nullptr,
                            Events* all = nullptr) {
  const Events events = RunJobForEvents(SmallJob(more), program);
  if (all != nullptr) *all = events;
  std::vector<double> norms;
  for (const auto& step : EventsOf(events, "step")) {
    norms.push_back(step.value("gradient_norm", -1.0));
  }
  return norms;
}

TEST(MeasuresTest, EveryLineHasTheNormInEveryLayoutTheSame) {
  const auto norms_of = [](Flags flags) {
    flags.insert(flags.end(), {"--reproducible", "--microbatch_size=2"});
    return NormsOf(flags);
  };
  const std::vector<double> one = norms_of({});
  ASSERT_EQ(one.size(), 6);
  for (const double norm : one) EXPECT_GT(norm, 0);
  const std::vector<Flags> layouts = {
      {"--nproc_per_node=2"},
      {"--nproc_per_node=2", "--shard_optimizer=on"},
      {"--devices_per_rank=2", "--strategy=pipeline"},
      {"--nproc_per_node=2", "--pipe=2", "--schedule=zb_h1"},
      {"--nproc_per_node=4", "--pipe=2"},
  };
  for (const Flags& layout : layouts) {
    EXPECT_EQ(norms_of(layout), one) << testing::PrintToString(layout);
  }
}

TEST(MeasuresTest, ALineHasTheNormOfItsOwnStep) {
  ProgramResult program;
  const std::vector<double> all = NormsOf({});
  const std::vector<double> some = NormsOf({"--log_every=4"}, &program);
  EXPECT_EQ(some, (std::vector<double>{all[3], all[5]}));
  EXPECT_THAT(program.out, HasSubstr("  gradient norm "));
}

TEST(MeasuresTest, DevicesMeasureItWithoutAWait) {
  const std::vector<double> expected = NormsOf({});
  ProgramResult program;
  const std::vector<double> norms =
      NormsOf({"--device=sim", "--sim_async"}, &program);
  ASSERT_EQ(norms.size(), expected.size());
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_NEAR(norms[i], expected[i], 1e-5 * expected[i]) << i;
  }
  EXPECT_THAT(program.out, HasSubstr("host waits a step  none"));
}

// Eight linear layers: 64 -> 64, six times 64 -> 64, 64 -> 10.
constexpr double kFlopsOfASample = 3 * 2.0 * (7 * 64 * 64 + 64 * 10);

TEST(MeasuresTest, FlopsAreThreeTimesTheForwardPasss) {
  ProgramResult program;
  Events events;
  NormsOf({}, &program, &events);
  EXPECT_EQ(events.front()["flops_per_sample"], kFlopsOfASample);
  for (const auto& step : EventsOf(events, "step")) {
    const double samples = step["samples_per_s"];
    EXPECT_NEAR(step["flops_per_s"].get<double>(), samples * kFlopsOfASample,
                1e-6 * samples * kFlopsOfASample);
    EXPECT_FALSE(step.contains("mfu"));
  }
  EXPECT_THAT(program.out, HasSubstr("FLOP/s  "));
  EXPECT_THAT(program.out, Not(HasSubstr("MFU")));
}

// What is computed a second time is not the model's.
TEST(MeasuresTest, UtilizationIsOfAllDevicesAndCountsNothingTwice) {
  ProgramResult program;
  Events events;
  NormsOf({"--peak_tflops=0.001", "--nproc_per_node=2", "--devices_per_rank=2",
           "--checkpoint_layers=fc"},
          &program, &events);
  EXPECT_EQ(events.front()["flops_per_sample"], kFlopsOfASample);
  for (const auto& step : EventsOf(events, "step")) {
    const double flops = step["flops_per_s"];
    EXPECT_NEAR(step["mfu"].get<double>(), flops / (4 * 1e9),
                1e-6 * flops / 4e9);
  }
  EXPECT_THAT(program.out, HasSubstr("  MFU "));
}

}  // namespace
}  // namespace tandem
