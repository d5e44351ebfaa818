// Options of a mesh strategy that differ between ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "models/classification_loss.h"
#include "parallel/schedule/schedules.h"
#include "parallel/strategy/mesh_checks.h"
#include "parallel/strategy/mesh_strategy.h"
#include "tests/parallel/strategy/lab_models.h"

namespace tandem::mesh_agreement_test {
namespace {

LayerSpecs Specs() { return LabSpecs("mlp_small"); }

// Two ranks with a stage each.
MeshStrategyOptions Options() {
  MeshStrategyOptions options;
  options.schedule = *MakeSchedule("1f1b", {2, 1, 4});
  options.cuts = {3};
  return options;
}

struct OtherOption {
  const char* name;  // that the message is to call it by
  std::function<void(MeshStrategyOptions&)> change;
};

const std::vector<OtherOption>& OtherOptions() {
  static const auto* options = new std::vector<OtherOption>{
      {"schedule's device 0",
       [](auto& o) {
         o.schedule = *MakeSchedule("gpipe", {2, 1, 4});
       }},
      {"schedule's microbatches",
       [](auto& o) {
         o.schedule = *MakeSchedule("1f1b", {2, 1, 8});
       }},
      {"cuts", [](auto& o) { o.cuts = {4}; }},
      {"devices.size()", [](auto& o) { o.devices.push_back(c10::kCPU); }},
      {"microbatch_size", [](auto& o) { o.microbatch_size = 3; }},
      {"ddp.mixed_precision",
       [](auto& o) { o.ddp.mixed_precision.param_dtype = at::kBFloat16; }},
      {"uneven_batches", [](auto& o) { o.uneven_batches = true; }},
      {"pipeline.checkpointing",
       [](auto& o) {
         o.pipeline.checkpointing = ActivationCheckpointing::kAlways;
       }},
      {"pipeline.selective.layers",
       [](auto& o) { o.pipeline.selective.layers = "^b"; }},
      {"pipeline.selective.every",
       [](auto& o) { o.pipeline.selective.every = 2; }},
      {"pipeline.defers_statistics",
       [](auto& o) { o.pipeline.defers_statistics = true; }},
      {"weight_gradient_batch", [](auto& o) { o.weight_gradient_batch = 2; }},
      {"seed", [](auto& o) { o.seed = 5; }},
      {"optimizer", [](auto& o) { o.optimizer = SgdOptions{0.9}; }},
      {"optimizer", [](auto& o) { o.optimizer = AdamOptions(); }},
      {"optimizer", [](auto& o) { o.optimizer = MuonOptions(); }},
      {"further_optimizers[0]",
       [](auto& o) { o.further_optimizers = {AdamWOptions()}; }},
      {"optimizer_group",
       [](auto& o) { o.optimizer_group = [](const auto&) { return 0; }; }},
      {"clip_norm", [](auto& o) { o.clip_norm = 1; }},
      {"clip_norm_type", [](auto& o) { o.clip_norm_type = 1; }},
      {"error_if_nonfinite", [](auto& o) { o.error_if_nonfinite = true; }},
      {"clip_value", [](auto& o) { o.clip_value = 1; }},
      {"ddp.bucket_cap_mb", [](auto& o) { o.ddp.bucket_cap_mb = 1; }},
      {"ddp.bucket_cap_mb_list",
       [](auto& o) {
         o.ddp.bucket_cap_mb_list = {1, 2};
       }},
      {"ddp.find_unused_parameters",
       [](auto& o) { o.ddp.find_unused_parameters = true; }},
      {"ddp.static_graph", [](auto& o) { o.ddp.static_graph = true; }},
      {"ddp.init_sync", [](auto& o) { o.ddp.init_sync = false; }},
      {"ddp.delay_all_reduce_named_params",
       [](auto& o) { o.ddp.delay_all_reduce_named_params = {"a"}; }},
      {"ddp.param_to_hook_all_reduce",
       [](auto& o) { o.ddp.param_to_hook_all_reduce = "a"; }},
      {"ddp.skip_all_reduce_unused_params",
       [](auto& o) { o.ddp.skip_all_reduce_unused_params = true; }},
      {"ddp.parameters_to_ignore",
       [](auto& o) { o.ddp.parameters_to_ignore = {"a"}; }},
      {"averaging",
       [](auto& o) {
         o.averaging = ParameterAveragingOptions{2, 1};
       }},
      {"make_hook",
       [](auto& o) { o.make_hook = [] { return CommunicationHook(); }; }},
      {"ddp.broadcast_buffers",
       [](auto& o) { o.ddp.broadcast_buffers = false; }},
      {"ema_decay", [](auto& o) { o.ema_decay = 0.9; }},
      {"reproducible", [](auto& o) { o.reproducible = true; }},
      {"updates_last", [](auto& o) { o.updates_last = true; }},
      {"gradient_groups", [](auto& o) { o.gradient_groups = 2; }},
      {"uneven_division",
       [](auto& o) { o.uneven_division = UnevenDivision::kInitialReplicas; }},
      {"shard", [](auto& o) { o.shard = Sharding::kOptimizer; }},
      {"tensor", [](auto& o) { o.tensor = 2; }},
      {"sequence_parallel", [](auto& o) { o.sequence_parallel = false; }},
      {"data_shard", [](auto& o) { o.data_shard = 2; }},
      {"shard_min_num_params", [](auto& o) { o.shard_min_num_params = 1; }},
      {"reshard_after_forward",
       [](auto& o) { o.reshard_after_forward = false; }},
      {"max_unsharded_stages",
       [](auto& o) { o.pipeline.max_unsharded_stages = 1; }},
      {"compares_replicas", [](auto& o) { o.compares_replicas = true; }},
      {"sync_batch_norm", [](auto& o) { o.sync_batch_norm = true; }},
      {"grad_scaler", [](auto& o) { o.grad_scaler = GradScalerOptions(); }},
  };
  return *options;
}

TEST(MeshAgreementTest, EveryOptionThatDiffersIsNamed) {
  const NamedValues usual =
      MeshStrategyValues(Specs(), CrossEntropy, Options());
  std::set<std::string> changed;
  for (const OtherOption& other : OtherOptions()) {
    MeshStrategyOptions options = Options();
    other.change(options);
    const NamedValues values =
        MeshStrategyValues(Specs(), CrossEntropy, options);
    EXPECT_THAT(CompareValues({usual, values}, {}, "options"),
                Says(std::string(other.name) + " is "));
    for (const auto& [name, value] : usual) {
      const auto found = values.find(name);
      if (found == values.end() || found->second != value) changed.insert(name);
    }
  }
  // An option that is compared has a row above; the rest is of other tests.
  for (const auto& each : usual) {
    const bool is_option = each.first != "layers" &&
                           each.first != "parameters' traits" &&
                           !absl::StartsWith(each.first, "loss's ") &&
                           !absl::StartsWith(each.first, "schedule's ");
    EXPECT_TRUE(!is_option || changed.count(each.first) > 0) << each.first;
  }
}

TEST(MeshAgreementTest, ALossThatTakesSomethingElseIsNamed) {
  const NamedValues usual =
      MeshStrategyValues(Specs(), CrossEntropy, Options());
  const LossFunction::NamedLoss of_masked = [](const LossArguments& arguments) {
    return CrossEntropy(arguments.outputs, arguments.targets);
  };
  const std::pair<const char*, LossFunction> others[] = {
      {"loss's targets is (empty) on rank 0, mask on rank 1",
       LossFunction({{}, {"mask"}}, of_masked)},
      {"loss's outputs is (empty) on rank 0, head on rank 1",
       LossFunction({{"head"}, {}}, of_masked)}};
  for (const auto& [says, loss] : others) {
    const absl::Status compared = CompareValues(
        {usual, MeshStrategyValues(Specs(), loss, Options())}, {}, "options");
    EXPECT_THAT(compared, Says(says));
  }
}

TEST(MeshAgreementTest, NamesOfSchedulesAndTimeoutsMayDiffer) {
  MeshStrategyOptions options = Options();
  options.schedule.name = "/another/path";
  options.pipeline.timeout = std::chrono::seconds(3);
  EXPECT_EQ(MeshStrategyValues(Specs(), CrossEntropy, options),
            MeshStrategyValues(Specs(), CrossEntropy, Options()));
}

// Without the comparison these end by timeout, or train something else.
TEST(MeshAgreementTest, CreateRefusesOnEveryRank) {
  const auto create =
      [](const std::string& model,
         const std::function<void(MeshStrategyOptions&)>& change,
         const std::string& says) {
        ExpectOk(RunThreadRanks(2, [&](Communicator& world) {
          MeshStrategyOptions options = Options();
          if (world.rank() == 1) change(options);
          const absl::Status status =
              MeshStrategy::Create(
                  LabSpecs(world.rank() == 1 ? model : "mlp_small"),
                  CrossEntropy, options, &world)
                  .status();
          EXPECT_THAT(status, InvalidArgument(says));
          return absl::OkStatus();
        }));
      };
  create(
      "mlp_small", [](auto& o) { o.cuts = {4}; },
      "cuts is 3 on rank 0, 4 on rank 1");
  create(
      "mlp_small", [](auto& o) { o.seed = 5; },
      "seed is 0 on rank 0, 5 on rank 1");
  create(
      "mlp_small",
      [](auto& o) {
        o.schedule = *MakeSchedule("1f1b", {2, 1, 8});
      },
      "schedule's microbatches is 4 on rank 0, 8 on rank 1");
  create(
      "mlp_deep", [](auto&) {}, "layers is ...");
}

// Also where the parameter is another rank's.
TEST(MeshAgreementTest, AGroupThatRanksSeeDifferentlyIsNamed) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) {
    MeshStrategyOptions options = Options();
    options.further_optimizers = {SgdOptions{0.9}};
    options.optimizer_group = [&](const std::string& name) {
      return name == "fc1.bias" ? world.rank() : 0;
    };
    const absl::Status status =
        MeshStrategy::Create(Specs(), CrossEntropy, options, &world).status();
    EXPECT_THAT(status, Says("optimizer_group of fc1.bias is 0 on rank 0, 1 on "
                             "rank 1"));
    return absl::OkStatus();
  }));
}

TEST(MeshAgreementTest, RanksThatAgreeGoOn) {
  ExpectOk(RunThreadRanks(2, [](Communicator& world) {
    return MeshStrategy::Create(Specs(), CrossEntropy, Options(), &world)
        .status();
  }));
}

}  // namespace
}  // namespace tandem::mesh_agreement_test
