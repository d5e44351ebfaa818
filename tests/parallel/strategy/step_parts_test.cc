#include "parallel/step/parts/step_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/classification_loss.h"
#include "parallel/strategy/mesh_checks.h"
#include "tests/parallel/strategy/lab_models.h"

namespace tandem::step_parts_test {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

NamedValues DescribedBy(const StepPartRow& row,
                        const MeshStrategyOptions& options) {
  NamedValues values;
  if (row.describe != nullptr) row.describe(options, values);
  return values;
}

// By the name of an option the name of the part that describes it.
std::map<std::string, std::string> Owners() {
  std::map<std::string, std::string> owners;
  for (const StepPartRow* row : StepPartRows()) {
    for (const auto& each : DescribedBy(*row, MeshStrategyOptions())) {
      owners[each.first] = row->name;
    }
  }
  return owners;
}

TEST(StepPartsTest, NamesAreUnique) {
  std::set<std::string> names;
  for (const StepPartRow* row : StepPartRows()) {
    ASSERT_NE(row, nullptr);
    EXPECT_STRNE(row->name, "");
    EXPECT_TRUE(names.insert(row->name).second) << row->name;
  }
}

// The order of a step's collectives.
TEST(StepPartsTest, WhatIsDoneToGradientsComesBeforeTheUpdate) {
  std::vector<std::string> names;
  for (const StepPartRow* row : StepPartRows()) {
    if (row->make != nullptr) names.push_back(row->name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "loss_terms", "score", "tied_weights", "loss_scale",
                       "gradient_norm", "sync_batch_norm", "buffers",
                       "optimizer", "sharded_optimizer", "fully_sharded",
                       "averaging", "ema", "updates_last", "times"}));
}

TEST(StepPartsTest, AnOptionIsDescribedByOnePart) {
  std::set<std::string> described;
  for (const StepPartRow* row : StepPartRows()) {
    for (const auto& each : DescribedBy(*row, MeshStrategyOptions())) {
      EXPECT_TRUE(described.insert(each.first).second) << each.first;
    }
  }
}

TEST(StepPartsTest, WhatRanksCompareHasEveryPart) {
  MeshStrategyOptions options;
  options.further_optimizers = {AdamWOptions()};
  options.averaging = ParameterAveragingOptions{2, 1};
  options.grad_scaler = GradScalerOptions();
  NamedValues values =
      MeshStrategyValues(LabSpecs("mlp_small"), CrossEntropy, options);
  for (const StepPartRow* row : StepPartRows()) {
    for (const auto& [name, value] : DescribedBy(*row, options)) {
      const auto found = values.find(name);
      ASSERT_NE(found, values.end()) << row->name << ": " << name;
      EXPECT_EQ(found->second, value) << row->name << ": " << name;
      values.erase(found);
    }
  }
  std::vector<std::string> others;
  for (const auto& each : values) others.push_back(each.first);
  EXPECT_THAT(others, UnorderedElementsAre("layers", "parameters' traits",
                                           "loss's outputs", "loss's targets"));
}

TEST(StepPartsTest, AnExclusionStandsOnce) {
  const std::map<std::string, std::string> owners = Owners();
  std::set<std::pair<std::string, std::string>> excludes;
  for (const StepPartRow* row : StepPartRows()) {
    std::set<std::string> options;
    for (const Exclusion& each : row->exclusions.others) {
      EXPECT_TRUE(options.insert(each.option).second)
          << row->name << " excludes " << each.option << " twice";
      if (each.is_given == nullptr) {  // flags alone have it
        EXPECT_EQ(owners.count(each.option), 0u) << each.option;
        continue;
      }
      const auto owner = owners.find(each.option);
      ASSERT_NE(owner, owners.end())
          << row->name << " excludes " << each.option << ", which nobody has";
      EXPECT_NE(owner->second, row->name);
      excludes.emplace(row->name, owner->second);
    }
  }
  for (const auto& [part, other] : excludes) {
    EXPECT_EQ(excludes.count({other, part}), 0u)
        << part << " and " << other << " exclude each other, each in its words";
  }
}

using Change = std::function<void(MeshStrategyOptions&)>;

// What is asked for by the names that messages have for it.
const std::map<std::string, Change>& Changes() {
  static const auto* const changes = new std::map<std::string, Change>{
      {"averaging",
       [](auto& o) {
         o.averaging = ParameterAveragingOptions{2, 0};
       }},
      {"compares_replicas", [](auto& o) { o.compares_replicas = true; }},
      {"defers_statistics",
       [](auto& o) { o.pipeline.defers_statistics = true; }},
      {"delay",
       [](auto& o) {
         o.ddp.delay_all_reduce_named_params = {"a"};
         o.ddp.param_to_hook_all_reduce = "b";
       }},
      {"ema_decay", [](auto& o) { o.ema_decay = 0.9; }},
      {"make_hook",
       [](auto& o) { o.make_hook = [] { return CommunicationHook(); }; }},
      {"reduce_dtype",
       [](auto& o) { o.ddp.mixed_precision.reduce_dtype = at::kBFloat16; }},
      {"reproducible", [](auto& o) { o.reproducible = true; }},
      {"shard_auto", [](auto& o) { o.shard = Sharding::kAuto; }},
      {"shard_on", [](auto& o) { o.shard = Sharding::kOptimizer; }},
      {"shard_parameters", [](auto& o) { o.shard = Sharding::kParameters; }},
      {"skip_unused",
       [](auto& o) { o.ddp.skip_all_reduce_unused_params = true; }},
      {"static_graph", [](auto& o) { o.ddp.static_graph = true; }},
      {"sync_batch_norm", [](auto& o) { o.sync_batch_norm = true; }},
      {"uneven_division",
       [](auto& o) { o.uneven_division = UnevenDivision::kInitialReplicas; }},
      {"updates_last", [](auto& o) { o.updates_last = true; }},
      {"weight_gradient_batch", [](auto& o) { o.weight_gradient_batch = 2; }},
  };
  return *changes;
}

struct Refused {
  const char* one;
  const char* other;
  const char* says;
};

std::vector<Refused> AllRefused() {
  return {
      {"sync_batch_norm", "averaging",
       "sync_batch_norm has replicas normalise together, averaging has them "
       "train apart: leave one of them out"},
      {"make_hook", "reduce_dtype",
       "mixed_precision.reduce_dtype is a communication hook, and make_hook "
       "gives another: leave one of them out"},
      {"shard_on", "averaging",
       "shard excludes averaging, with which replicas train apart; "
       "leave one of them out"},
      {"shard_on", "static_graph",
       "shard excludes ddp.static_graph, which moves parameters "
       "after the first step; leave one of them out"},
      {"shard_on", "skip_unused",
       "shard excludes ddp.skip_all_reduce_unused_params, which "
       "moves parameters after the first step; leave one of them out"},
      {"shard_on", "compares_replicas",
       "shard excludes comparing replicas, which its owners' values "
       "make alike in each step, corrupted or not; leave one of them out"},
      {"shard_parameters", "averaging",
       "shard excludes averaging, with which replicas train apart; "
       "leave one of them out"},
      {"shard_parameters", "static_graph",
       "shard excludes ddp.static_graph, which moves parameters "
       "after the first step; leave one of them out"},
      {"shard_parameters", "skip_unused",
       "shard excludes ddp.skip_all_reduce_unused_params, which "
       "moves parameters after the first step; leave one of them out"},
      {"shard_parameters", "compares_replicas",
       "shard excludes comparing replicas, which its owners' values "
       "make alike in each step, corrupted or not; leave one of them out"},
      {"shard_parameters", "make_hook",
       "shard excludes make_hook, which averages in another way; leave one of "
       "them out"},
      {"shard_parameters", "reduce_dtype",
       "shard excludes ddp.mixed_precision.reduce_dtype; leave one of them "
       "out"},
      {"shard_parameters", "delay",
       "shard excludes ddp.delay_all_reduce_named_params, which averages at "
       "another time; leave one of them out"},
      {"updates_last", "shard_parameters",
       "updates_last excludes shard, whose updates have "
       "collectives; leave one of them out"},
      {"ema_decay", "averaging",
       "ema_decay excludes averaging, with which replicas have weights of "
       "their own; leave one of them out"},
      {"updates_last", "shard_on",
       "updates_last excludes shard, whose updates have "
       "collectives; leave one of them out"},
      {"updates_last", "shard_auto",
       "updates_last excludes shard, whose updates have "
       "collectives; leave one of them out"},
      {"updates_last", "averaging",
       "updates_last excludes averaging of parameters, whose updates have "
       "collectives; leave one of them out"},
      {"reproducible", "delay",
       "reproducible excludes delay_all_reduce_named_params: sums would "
       "depend on the layout; leave one of them out"},
      {"reproducible", "skip_unused",
       "reproducible excludes skip_all_reduce_unused_params: sums would "
       "depend on the layout; leave one of them out"},
      {"reproducible", "static_graph",
       "reproducible excludes static_graph: sums would depend on the layout; "
       "leave one of them out"},
      {"reproducible", "uneven_division",
       "reproducible excludes an uneven_division other than by samples: sums "
       "would depend on the layout; leave one of them out"},
      {"reproducible", "sync_batch_norm",
       "reproducible excludes sync_batch_norm: sums would depend on the "
       "layout; leave one of them out"},
      {"reproducible", "averaging",
       "reproducible excludes averaging of parameters: sums would depend on "
       "the layout; leave one of them out"},
      {"reproducible", "defers_statistics",
       "reproducible excludes deferred statistics: sums would depend on the "
       "layout; leave one of them out"},
      {"reproducible", "reduce_dtype",
       "reproducible excludes mixed_precision.reduce_dtype: sums would depend "
       "on the layout; leave one of them out"},
      {"reproducible", "make_hook",
       "reproducible excludes a communication hook: sums would depend on the "
       "layout; leave one of them out"},
      {"reproducible", "weight_gradient_batch",
       "reproducible excludes weight_gradient_batch > 1: sums would depend on "
       "the layout; leave one of them out"},
  };
}

TEST(StepPartsTest, OptionsThatExcludeEachOtherAreRefusedInOneWay) {
  for (const Refused& each : AllRefused()) {
    MeshStrategyOptions options;
    Changes().at(each.one)(options);
    Changes().at(each.other)(options);
    const absl::Status status = CheckMeshOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), each.says);
  }
}

// And pairs that no part excludes.
TEST(StepPartsTest, OthersAreNot) {
  std::set<std::set<std::string>> refused;
  for (const Refused& each : AllRefused()) {
    refused.insert({each.one, each.other});
  }
  // One option.
  for (const char* each : {"shard_auto", "shard_parameters"}) {
    for (const char* other : {"shard_on", "shard_parameters"}) {
      refused.insert({each, other});
    }
  }
  for (const auto& [one, change] : Changes()) {
    for (const auto& [other, further] : Changes()) {
      if (refused.count({one, other}) > 0) continue;
      MeshStrategyOptions options;
      change(options);
      further(options);
      const absl::Status status = CheckMeshOptions(options);
      EXPECT_TRUE(status.ok()) << one << " and " << other << ": " << status;
    }
  }
}

TEST(StepPartsTest, WhatExcludesShardingIsKnownWithoutIt) {
  EXPECT_THAT(ExcludesSharding(MeshStrategyOptions()), IsEmpty());
  MeshStrategyOptions options;
  options.ddp.static_graph = true;
  EXPECT_EQ(ExcludesSharding(options),
            "ddp.static_graph, which moves parameters after the first step");
}

}  // namespace
}  // namespace tandem::step_parts_test
