// A job whose convolutions lie channels-last: the same losses within rounding,
// and checkpoints that serve both formats.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

Flags Job(const Flags& more) {
  Flags job = SmallJob({"--model=cnn", "--max_steps=4"});
  job.insert(job.end(), more.begin(), more.end());
  return job;
}

double LastLoss(const Events& events) {
  return EventsOf(events, "step").back()["loss"];
}

TEST(ChannelsLastTest, LossesAreTheSameWithinRounding) {
  for (const Flags& layout :
       {Flags{}, Flags{"--nproc_per_node=2"},
        Flags{"--devices_per_rank=2", "--strategy=pipeline", "--device=sim"}}) {
    Flags converted = layout;
    converted.push_back("--channels_last");
    const double usual = LastLoss(RunJobForEvents(Job(layout)));
    EXPECT_NEAR(LastLoss(RunJobForEvents(Job(converted))), usual, 1e-4 * usual);
  }
}

TEST(ChannelsLastTest, CheckpointsServeBothFormats) {
  const std::string folder = testing::TempDir() + "/formats";
  Flags first = Job({"--channels_last", "--save_dir=" + folder});
  first.push_back("--max_steps=2");
  const Events saved = RunJobForEvents(first);
  for (const Flags& format : {Flags{}, Flags{"--channels_last"}}) {
    Flags nothing_left = Job({"--resume=" + folder, "--max_steps=2"});
    nothing_left.insert(nothing_left.end(), format.begin(), format.end());
    EXPECT_EQ(Fingerprint(RunJobForEvents(nothing_left)), Fingerprint(saved));
  }
  const double on =
      LastLoss(RunJobForEvents(Job({"--resume=" + folder, "--channels_last"})));
  EXPECT_NEAR(LastLoss(RunJobForEvents(Job({"--resume=" + folder}))), on,
              1e-4 * on);
}

}  // namespace
}  // namespace tandem
