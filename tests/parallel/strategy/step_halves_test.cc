// A step in two halves is the step, and gradients can be changed in between.

#include <ATen/Tensor.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/fingerprint.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "core/testing/statuses.h"
#include "models/classification_loss.h"
#include "parallel/strategy/mesh_training.h"
#include "parallel/strategy/replicated.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem::step_halves_test {
namespace {

constexpr uint64_t kSeed = 8;
constexpr double kRate = 0.1;

Batch BatchOf(int step, int replica) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", step, " of ", replica));
  return {at::randint(20, {4, 6}, generator, at::kLong),
          at::randint(20, {4, 6}, generator, at::kLong), 4};
}

struct Job {
  LabLayout layout;
  LabJob job;
};

// Two microbatches on each replica.
LabLayout LayoutOf(const std::string& name, int replicas, int pipe,
                   int devices) {
  LabLayout layout = {name, "1f1b", replicas, pipe, devices};
  layout.microbatches = 2 * replicas;
  layout.group_of_one = true;
  return layout;
}

Job HybridJob(const std::string& model, int replicas, int pipe, int devices,
              double clip_norm, bool reproducible = false) {
  LabJob job;
  job.specs = [model] { return LabSpecs(model); };
  job.loss = CrossEntropy;
  job.change = [=](MeshStrategyOptions& options) {
    options.seed = kSeed;
    options.clip_norm = clip_norm;
    options.reproducible = reproducible;
  };
  return {LayoutOf(absl::StrCat(model, ", ", replicas, " hybrids, pipe ", pipe),
                   replicas, pipe, devices),
          job};
}

Job ReplicatedJob(int ranks) {
  LabJob job;
  job.make = [](Communicator* world) {
    ReplicatedOptions options;
    options.clip_norm = 0.5;
    return MakeReplicated(MakeLayers(LabSpecs("gpt_tiny_tied"), kSeed),
                          CrossEntropy, options, *world);
  };
  return {LayoutOf(absl::StrCat("replicated ", ranks), ranks, 1, 1), job};
}

std::vector<Job> Jobs() {
  return {HybridJob("gpt_tiny", 1, 1, 2, 0),
          HybridJob("gpt_tiny", 1, 2, 1, 0.5),
          HybridJob("gpt_tiny_tied", 1, 2, 1, 0),
          HybridJob("gpt_tiny_tied", 2, 2, 1, 0.5),
          HybridJob("gpt_tiny", 2, 1, 2, 0, /*reproducible=*/true),
          ReplicatedJob(1),
          ReplicatedJob(2)};
}

using Step = std::function<absl::Status(Strategy&, const Batch&, int number)>;

// By rank, the parameters' hashes after each of three steps.
std::vector<std::string> Hashes(const Job& job, const Step& step) {
  std::vector<std::string> hashes(static_cast<size_t>(job.layout.ranks()));
  ExpectOk(
      OnLabRanks(job.layout, job.job, [&](const LabRank& rank) -> absl::Status {
        std::string& mine = hashes[static_cast<size_t>(rank.rank)];
        for (int i = 0; i < 3; ++i) {
          TANDEM_RETURN_IF_ERROR(
              step(*rank.strategy, BatchOf(i, rank.replica), i));
          absl::StrAppend(&mine, WeightsSha256(rank.strategy->Parameters()),
                          " ");
        }
        return absl::OkStatus();
      }));
  return hashes;
}

absl::Status Whole(Strategy& strategy, const Batch& batch, int) {
  return strategy.TrainStep(batch, kRate).status();
}

absl::Status InHalves(Strategy& strategy, const Batch& batch, int) {
  TANDEM_RETURN_IF_ERROR(strategy.ComputeGradients(batch).status());
  EXPECT_EQ(strategy.Gradients().size(), strategy.Parameters().size());
  return strategy.Update(kRate);
}

TEST(StepHalvesTest, AreTheStep) {
  for (const Job& job : Jobs()) {
    SCOPED_TRACE(job.layout.name);
    EXPECT_EQ(Hashes(job, InHalves), Hashes(job, Whole));
  }
}

TEST(StepHalvesTest, GradientsMayBeChangedBetween) {
  for (const Job& job : {HybridJob("gpt_tiny", 1, 2, 1, 0), ReplicatedJob(1)}) {
    SCOPED_TRACE(job.layout.name);
    ExpectOk(OnLabRanks(
        job.layout, job.job, [&](const LabRank& rank) -> absl::Status {
          Strategy* const strategy = rank.strategy;
          TANDEM_RETURN_IF_ERROR(
              strategy->ComputeGradients(BatchOf(0, 0)).status());
          for (const auto& each : strategy->Gradients()) each.second.fill_(0);
          const std::string hash = WeightsSha256(strategy->Parameters());
          TANDEM_RETURN_IF_ERROR(strategy->Update(kRate));
          EXPECT_EQ(WeightsSha256(strategy->Parameters()), hash);
          TANDEM_RETURN_IF_ERROR(
              strategy->ComputeGradients(BatchOf(1, 0)).status());
          TANDEM_RETURN_IF_ERROR(strategy->Update(kRate));
          EXPECT_NE(WeightsSha256(strategy->Parameters()), hash);
          return absl::OkStatus();
        }));
  }
}

TEST(StepHalvesTest, AnUpdateMayBeSkipped) {
  const auto skip_second = [](Strategy& strategy, const Batch& batch,
                              int number) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(strategy.ComputeGradients(batch).status());
    return number == 1 ? strategy.SkipUpdate() : strategy.Update(kRate);
  };
  for (const Job& job : Jobs()) {
    SCOPED_TRACE(job.layout.name);
    const auto found = Hashes(job, skip_second);
    const auto whole = Hashes(job, Whole);
    for (size_t rank = 0; rank < found.size(); ++rank) {
      const size_t hash = found[rank].size() / 3;
      EXPECT_EQ(found[rank].substr(0, hash), whole[rank].substr(0, hash));
      EXPECT_EQ(found[rank].substr(hash, hash), found[rank].substr(0, hash));
      EXPECT_NE(found[rank].substr(2 * hash), found[rank].substr(0, hash));
    }
  }
}

TEST(StepHalvesTest, FollowEachOther) {
  for (const Job& job : {HybridJob("gpt_tiny", 1, 1, 2, 0), ReplicatedJob(1)}) {
    SCOPED_TRACE(job.layout.name);
    ExpectOk(OnLabRanks(
        job.layout, job.job, [&](const LabRank& rank) -> absl::Status {
          Strategy* const strategy = rank.strategy;
          const Batch batch = BatchOf(0, 0);
          for (const absl::Status& each :
               {strategy->Update(kRate), strategy->SkipUpdate()}) {
            EXPECT_THAT(each, StatusIs(absl::StatusCode::kFailedPrecondition,
                                       "ComputeGradients comes first"));
          }
          TANDEM_RETURN_IF_ERROR(strategy->ComputeGradients(batch).status());
          for (const absl::Status& each :
               {strategy->ComputeGradients(batch).status(),
                strategy->TrainStep(batch, kRate).status()}) {
            EXPECT_EQ(each.code(), absl::StatusCode::kFailedPrecondition);
          }
          TANDEM_RETURN_IF_ERROR(strategy->Update(kRate));
          return strategy->TrainStep(batch, kRate).status();
        }));
  }
}

}  // namespace
}  // namespace tandem::step_halves_test
