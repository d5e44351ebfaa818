// Modules that this project did not write, in every layout, with no change to
// their classes.

#include "tests/parallel/modules/outside_modules.h"

#include <ATen/Tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/sim/testing.h"
#include "core/testing/thread_ranks.h"
#include "parallel/distributed_data_parallel.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/pipeline/microbatches.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {
namespace {

using at::Tensor;

// Simulated devices are made before a process's first backward.
[[maybe_unused]] const bool has_devices = !SimDevices(3).empty();

LabJob Job(const OutsideCase& outside_case) {
  LabJob job;
  job.specs = [layers = outside_case.layers] { return layers().specs; };
  job.loss = outside_case.loss(outside_case.layers());
  job.change = [](MeshStrategyOptions& options) {
    options.reproducible = true;
    options.seed = kOutsideSeed;
  };
  job.batch = outside_case.batch;
  job.sparing = true;
  job.steps = kOutsideSteps;
  job.rate = kOutsideRate;
  job.test = 100;
  return job;
}

std::vector<LabLayout> Layouts() {
  std::vector<LabLayout> layouts;
  const auto add = [&](const std::string& schedule, int replicas, int ranks,
                       int devices, int chunks = 1) {
    LabLayout layout = {
        absl::StrCat(replicas, "x", ranks, "x", devices, " ", schedule),
        schedule,
        replicas,
        ranks,
        devices,
        chunks};
    layout.microbatches = 8;
    layouts.push_back(layout);
  };
  add("1f1b", 2, 1, 1);  // data parallel
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    add(schedule, 1, 3, 1);
    add(schedule, 1, 1, 2);
    add(schedule, 2, 2, 1);
  }
  add("interleaved_1f1b", 1, 2, 1, 2);
  add("zb_v", 1, 2, 1, 2);
  add("zb_h1", 1, 1, 3);
  layouts.back().name += " on simulated devices";
  layouts.back().device_pool = SimDevices(3);
  return layouts;
}

class OutsideModulesTest : public testing::TestWithParam<OutsideCase> {};

TEST_P(OutsideModulesTest, EveryLayoutHasTheSameBits) {
  const OutsideCase& outside_case = GetParam();
  const LabLayout single = LabLayoutNamed("1f1b 1x1x1", 8);
  const auto expected = TrainInLab(single, Job(outside_case));
  ASSERT_TRUE(expected.ok()) << expected.status();
  int cells = 0;
  for (const LabLayout& layout : Layouts()) {
    SCOPED_TRACE(layout.name);
    ExpectSameBits(TrainInLab(layout, Job(outside_case)), expected);
    ++cells;
    std::printf("%s: %s\n", outside_case.name.c_str(), layout.name.c_str());
  }
  EXPECT_EQ(cells, 13);
}

TEST_P(OutsideModulesTest, ItTrainsAsTheModuleByItself) {
  const OutsideCase& outside_case = GetParam();
  const LabLayout single = LabLayoutNamed("1f1b 1x1x1", 8);
  const auto found = TrainInLab(single, Job(outside_case));
  ASSERT_TRUE(found.ok()) << found.status();
  for (const auto& [name, values] : TrainedByItself(outside_case)) {
    SCOPED_TRACE(name);
    ASSERT_EQ(found->model.count(name), 1u);
    EXPECT_TRUE(found->model.at(name).allclose(values, 1e-4, 1e-5));
    const auto before = Seeded(outside_case.make)->named_parameters()[name];
    EXPECT_FALSE(found->model.at(name).equal(before));
  }
}

INSTANTIATE_TEST_SUITE_P(Modules, OutsideModulesTest,
                         testing::Values(OfDetector(), OfTranslator(),
                                         OfRecurrent()));

// Each rank's constructors draw others.
TEST(OutsideModulesValuesTest, ReplicasTakeThoseOfReplica0) {
  LabJob job = Job(OfRecurrent());
  job.specs = [] {
    const auto seed = static_cast<uint64_t>(ThisThreadsRank());
    return LayersOf(Seeded(outside::Recurrent, seed),
                    ToTree(OfRecurrent().batch(0).inputs))
        .value()
        .specs;
  };
  job.steps = 0;
  const auto found = TrainInLab(LabLayoutNamed("1f1b 2x2x1", 8), job);
  ASSERT_TRUE(found.ok()) << found.status();
  const auto net = [](uint64_t rank) {
    return CopiesOf(*Seeded(outside::Recurrent, rank));
  };
  const auto first = net(0), second = net(1);  // its two stages
  EXPECT_TRUE(found->model.at("0.weight").equal(first.at("0.weight")));
  EXPECT_TRUE(found->model.at("6.weight").equal(second.at("6.weight")));
  ExpectSameBits(found->held[2], found->held[0]);
  ExpectSameBits(found->held[3], found->held[1]);
}

// Each rank's half of the batches, with a loop of its own.
absl::Status TrainDetectorInDdp(Communicator& world,
                                std::map<std::string, Tensor>* trained) {
  const auto net = Seeded([] { return std::make_shared<outside::Detector>(); });
  TANDEM_ASSIGN_OR_RETURN(const auto ddp,
                          MakeDistributedDataParallel(net, world));
  TANDEM_ASSIGN_OR_RETURN(const auto optimizer,
                          MakeOptimizer(SgdOptions{}, ddp->flat_buffers()));
  for (int step = 0; step < kOutsideSteps; ++step) {
    TANDEM_ASSIGN_OR_RETURN(
        const std::vector<Batch> parts,
        SplitBatch(OfDetector().batch(step),
                   EvenSizes(kOutsideSamples, world.size())));
    const Batch& mine = parts[static_cast<size_t>(world.rank())];
    ddp->ZeroGrad();
    TANDEM_ASSIGN_OR_RETURN(
        const outside::Predictions outputs,
        ddp->Forward(mine.inputs,
                     mine.further_inputs.at("input[1]").toTensor()));
    const DetectorTargets targets = {
        mine.targets, mine.further_targets.at("target[1]").toTensor()};
    TANDEM_RETURN_IF_ERROR(ddp->Backward(DetectorLoss(outputs, targets).loss));
    optimizer->Step(kOutsideRate);
  }
  if (world.rank() == 0) *trained = CopiesOf(*net);
  return absl::OkStatus();
}

// Whole, in the wrapper: dicts and all.
TEST(OutsideModuleInDdpTest, ItsForwardGivesADict) {
  std::map<std::string, Tensor> found;
  const absl::Status status = RunThreadRanks(2, [&](Communicator& world) {
    return TrainDetectorInDdp(world, &found);
  });
  ASSERT_TRUE(status.ok()) << status;
  for (const auto& [name, values] : TrainedByItself(OfDetector())) {
    EXPECT_TRUE(found.at(name).allclose(values, 1e-4, 1e-5)) << name;
  }
}

}  // namespace
}  // namespace tandem
