// How many checkpoints a job makes and keeps: by arithmetic, and by going
// through its steps.

#include "tools/trainer/dry_run/disk_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace tandem::disk_estimate_test {
namespace {

struct Counts {
  int64_t made = 0;
  int64_t at_once = 0;
};

// A job that saves and removes: the oldest beyond keep_last, but for the steps
// that keep_every divides.
Counts Simulated(const SavePlan& plan) {
  Counts counts;
  std::vector<int64_t> there;
  for (int64_t step = plan.done + 1; step <= plan.steps; ++step) {
    const bool by_step = plan.save_every > 0 && step % plan.save_every == 0;
    const bool ends = step % plan.steps_per_epoch == 0;
    const bool by_epoch =
        ends && plan.save_every_epochs > 0 &&
        step / plan.steps_per_epoch % plan.save_every_epochs == 0;
    const bool evaluated =
        ends || (plan.eval_every > 0 && step % plan.eval_every == 0);
    const bool is_best = plan.keep_best && evaluated;
    if (!by_step && !by_epoch && !is_best && step != plan.steps) continue;
    there.push_back(step);
    ++counts.made;
    counts.at_once =
        std::max(counts.at_once, static_cast<int64_t>(there.size()));
    if (plan.keep_last == 0) continue;
    std::vector<int64_t> kept;
    for (size_t i = 0; i < there.size(); ++i) {
      const auto newer = static_cast<int64_t>(there.size() - i);
      const bool stays = plan.keep_every > 0 && there[i] % plan.keep_every == 0;
      if (newer <= plan.keep_last || stays) kept.push_back(there[i]);
    }
    there = kept;
  }
  return counts;
}

TEST(DiskEstimateTest, CountsAreThoseOfAJobThatSaves) {
  int jobs = 0;
  for (const int64_t steps : {0, 1, 7, 12, 30}) {
    for (const int64_t per_epoch : {1, 5, 6, 31}) {
      for (const int64_t every : {0, 1, 4, 5, 40}) {
        for (const int64_t epochs : {0, 1, 2, 3}) {
          for (const int64_t done : {0, 3, 30}) {
            for (const int64_t last : {0, 1, 3}) {
              for (const int64_t kept : {0, 2, 7}) {
                if (last == 0 && kept > 0) continue;
                const SavePlan plan = {steps,  per_epoch, done, every,
                                       epochs, last,      kept};
                const Counts counts = Simulated(plan);
                EXPECT_EQ(CheckpointCount(plan), counts.made);
                // An upper bound; exact where none is kept for good.
                EXPECT_GE(MostCheckpoints(plan), counts.at_once);
                if (kept == 0) {
                  EXPECT_EQ(MostCheckpoints(plan), counts.at_once);
                }
                EXPECT_LE(MostCheckpoints(plan), counts.made);
                ++jobs;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(jobs, 5 * 4 * 5 * 4 * 3 * 7);
}

TEST(DiskEstimateTest, EachEvaluationMayBeTheBest) {
  for (const int64_t per_epoch : {1, 5, 6, 31}) {
    for (const int64_t every : {0, 4, 5}) {
      for (const int64_t eval_every : {0, 1, 3, 10}) {
        for (const int64_t last : {0, 1, 3}) {
          SavePlan plan = {/*steps=*/30,
                           per_epoch,
                           /*done=*/3,
                           every,
                           /*save_every_epochs=*/0,
                           last};
          plan.keep_best = true;
          plan.eval_every = eval_every;
          const Counts counts = Simulated(plan);
          EXPECT_EQ(CheckpointCount(plan), counts.made);
          EXPECT_GE(MostCheckpoints(plan), counts.at_once);
          if (last == 0) {
            EXPECT_EQ(MostCheckpoints(plan), counts.made);
          }
        }
      }
    }
  }
  // The first is the best, and stays beside the newest and the one before.
  SavePlan plan = {
      /*steps=*/30,     /*steps_per_epoch=*/10,  /*done=*/0,
      /*save_every=*/1, /*save_every_epochs=*/1, /*keep_last=*/1};
  plan.keep_best = true;
  EXPECT_EQ(MostCheckpoints(plan), 3);
}

TEST(DiskEstimateTest, NumbersWithoutEndAreNoStep) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  SavePlan plan;
  plan.steps = 1000;
  plan.steps_per_epoch = kEnd;
  plan.save_every = kEnd - 1;
  plan.save_every_epochs = kEnd;
  EXPECT_EQ(CheckpointCount(plan), 1);
  EXPECT_EQ(MostCheckpoints(plan), 1);
}

TEST(DiskEstimateTest, WhatDoesNotFitIsRefused) {
  TrainOptions options;
  DiskEstimate disk = {/*checkpoint=*/10, /*made=*/4, /*at_once=*/3,
                       /*free=*/30};
  EXPECT_TRUE(CheckDisk(disk, options).ok());
  disk.free = 29;
  const absl::Status refused = CheckDisk(disk, options);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_EQ(refused.message(),
            "--save_dir=checkpoints: 3 checkpoints of 10 B will be there at "
            "once, but its disk has 29 B left: free some, or give "
            "--keep_last=NUMBER, a larger --save_every, or a folder of another "
            "disk");
  disk.free = -1;  // not known
  EXPECT_TRUE(CheckDisk(disk, options).ok());
  disk = {std::numeric_limits<int64_t>::max() / 2, 9, 9, 1};
  EXPECT_FALSE(CheckDisk(disk, options).ok());
}

}  // namespace
}  // namespace tandem::disk_estimate_test
