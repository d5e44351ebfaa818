// Flags refuse, in their words, what the parts of a step exclude in theirs.

#include <functional>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "parallel/step/parts/step_parts.h"
#include "tools/trainer/settings/options.h"

namespace tandem::excluded_options_test {
namespace {

using Change = std::function<void(TrainOptions&)>;

TrainOptions Several() {
  TrainOptions options;
  options.strategy = "hybrid";
  options.pipeline.microbatch_size = 4;
  return options;
}

// By the name of a part the flags that ask for it.
const std::map<std::string, Change>& FlagsOfParts() {
  static const auto* const flags = new std::map<std::string, Change>{
      {"reproducible", [](auto& o) { o.pipeline.reproducible = true; }},
      {"sharded_optimizer", [](auto& o) { o.ddp.shard_optimizer = "on"; }},
      {"sync_batch_norm", [](auto& o) { o.ddp.sync_batch_norm = true; }},
      {"updates_last", [](auto& o) { o.replace_replicas = 1; }},
  };
  return *flags;
}

// By the name of an option of MeshStrategyOptions the flags that give it.
const std::map<std::string, Change>& FlagsOfOptions() {
  static const auto* const flags = new std::map<std::string, Change>{
      {"averaging", [](auto& o) { o.ddp.average_parameters_every = 2; }},
      {"compares_replicas", [](auto& o) { o.check_replicas_every = 1; }},
      {"ddp.delay_all_reduce_named_params",
       [](auto& o) {
         o.ddp.delay_all_reduce_named_params = {"a"};
         o.ddp.param_to_hook_all_reduce = "b";
       }},
      {"ddp.mixed_precision", [](auto& o) { o.reduce_dtype = "bf16"; }},
      {"ddp.skip_all_reduce_unused_params",
       [](auto& o) { o.ddp.skip_all_reduce_unused_params = true; }},
      {"ddp.static_graph", [](auto& o) { o.ddp.static_graph = true; }},
      {"make_hook", [](auto& o) { o.ddp.comm_hook = "fp16"; }},
      {"pipeline.defers_statistics",
       [](auto& o) { o.pipeline.deferred_batch_norm = true; }},
      {"shard_optimizer", [](auto& o) { o.ddp.shard_optimizer = "on"; }},
      {"sync_batch_norm", [](auto& o) { o.ddp.sync_batch_norm = true; }},
      {"uneven_division",
       [](auto& o) {
         o.drop_last = false;
         o.ddp.uneven_inputs = "join";
         o.ddp.join_divide_by = "initial";
       }},
      {"weight_gradient_batch",
       [](auto& o) { o.pipeline.weight_gradient_batch = 2; }},
  };
  return *flags;
}

TEST(ExcludedOptionsTest, EachAloneIsTaken) {
  for (const auto* flags : {&FlagsOfParts(), &FlagsOfOptions()}) {
    for (const auto& [name, change] : *flags) {
      TrainOptions options = Several();
      change(options);
      const absl::Status status = Validate(options);
      EXPECT_TRUE(status.ok()) << name << ": " << status;
    }
  }
}

TEST(ExcludedOptionsTest, WhatAPartExcludesItsFlagsRefuse) {
  for (const StepPartRow* row : StepPartRows()) {
    if (row->exclusions.others.empty()) continue;
    ASSERT_EQ(FlagsOfParts().count(row->name), 1u) << row->name;
    for (const Exclusion& each : row->exclusions.others) {
      ASSERT_EQ(FlagsOfOptions().count(each.option), 1u) << each.option;
      TrainOptions options = Several();
      FlagsOfParts().at(row->name)(options);
      FlagsOfOptions().at(each.option)(options);
      EXPECT_EQ(Validate(options).code(), absl::StatusCode::kInvalidArgument)
          << row->name << " and " << each.option;
    }
  }
}

}  // namespace
}  // namespace tandem::excluded_options_test
