// Flags refuse, in their words, what the parts of a step exclude in theirs.

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/testing/statuses.h"
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
      {"ema", [](auto& o) { o.ema_decay = 0.9; }},
      {"fully_sharded", [](auto& o) { o.ddp.shard = "parameters"; }},
      {"reproducible", [](auto& o) { o.pipeline.reproducible = true; }},
      {"sharded_optimizer", [](auto& o) { o.ddp.shard = "optimizer"; }},
      {"sync_batch_norm", [](auto& o) { o.ddp.sync_batch_norm = true; }},
      {"tensor_parallel", [](auto& o) { o.pipeline.tensor = 2; }},
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
      {"lora_rank", [](auto& o) { o.lora_rank = 2; }},
      {"make_hook", [](auto& o) { o.ddp.comm_hook = "fp16"; }},
      {"optimizer", [](auto& o) { o.optimizer = "muon"; }},
      {"pipeline.defers_statistics",
       [](auto& o) { o.pipeline.deferred_batch_norm = true; }},
      {"reproducible", [](auto& o) { o.pipeline.reproducible = true; }},
      {"shard", [](auto& o) { o.ddp.shard = "optimizer"; }},
      {"strategy",
       [](auto& o) {
         o.strategy = "parameter_server";
         o.pipeline.microbatch_size = 0;
       }},
      {"sync_batch_norm", [](auto& o) { o.ddp.sync_batch_norm = true; }},
      {"uneven_division",
       [](auto& o) {
         o.drop_last = false;
         o.ddp.uneven_inputs = "join";
         o.ddp.join_divide_by = "initial";
       }},
      {"vocab_parallel", [](auto& o) { o.vocab_parallel = 2; }},
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

// By the names of a part and an option what the flags say.
const std::map<std::pair<std::string, std::string>, std::string>& Sentences() {
  const std::string for_layout =
      " lets sums depend on the layout, which --reproducible cannot have: "
      "leave one out";
  const std::string rounds =
      " rounds what replicas send, which --reproducible cannot have: leave one "
      "out";
  const auto moves = [](const std::string& flag) {
    return "--shard=optimizer needs parameters that stay in their places "
           "and are updated together, which " +
           flag + " does not give: leave one of them out";
  };
  const auto averages = [](const std::string& flag) {
    return "--shard=parameters averages gradients itself, a share a rank, "
           "which " +
           flag + " does in another way: leave one of them out";
  };
  static const auto* const sentences =
      new std::map<std::pair<std::string, std::string>, std::string>{
          {{"ema", "averaging"},
           "--ema_decay=0.9 averages weights that all replicas have alike, "
           "which --average_parameters_every does not give in each step: leave "
           "one of them out"},
          {{"ema", "strategy"},
           "--ema_decay=0.9 averages weights where they are updated, which "
           "with --strategy=parameter_server is on servers, which have no "
           "averages: leave it out, or take another strategy"},
          {{"fully_sharded", "ddp.delay_all_reduce_named_params"},
           averages("--delay_all_reduce_named_params")},
          {{"fully_sharded", "ddp.mixed_precision"},
           averages("--reduce_dtype")},
          {{"fully_sharded", "make_hook"}, averages("--comm_hook")},
          {{"reproducible", "averaging"},
           "--average_parameters_every=2" + for_layout},
          {{"reproducible", "ddp.delay_all_reduce_named_params"},
           "--delay_all_reduce_named_params=a" + for_layout},
          {{"reproducible", "ddp.mixed_precision"},
           "--reduce_dtype=bf16" + rounds},
          {{"reproducible", "ddp.skip_all_reduce_unused_params"},
           "--skip_all_reduce_unused_params=true" + for_layout},
          {{"reproducible", "ddp.static_graph"},
           "--static_graph=true" + for_layout},
          {{"reproducible", "make_hook"}, "--comm_hook=fp16" + rounds},
          {{"reproducible", "pipeline.defers_statistics"},
           "--deferred_batch_norm takes a replica's statistics together, which "
           "--reproducible cannot have: leave one out"},
          {{"reproducible", "sync_batch_norm"},
           "--sync_batch_norm=true" + for_layout},
          {{"reproducible", "uneven_division"},
           "--join_divide_by=initial" + for_layout},
          {{"reproducible", "weight_gradient_batch"},
           "--weight_gradient_batch=2 computes gradients of several "
           "microbatches together, which --reproducible cannot have: leave one "
           "out"},
          {{"sharded_optimizer", "averaging"},
           moves("--average_parameters_every")},
          {{"sharded_optimizer", "compares_replicas"},
           "--check_replicas_every=1 compares replicas, which "
           "--shard=optimizer makes alike in each step, for the owner of a "
           "parameter sends its values, corrupted or not: leave one out"},
          {{"sharded_optimizer", "ddp.skip_all_reduce_unused_params"},
           moves("--skip_all_reduce_unused_params")},
          {{"sharded_optimizer", "ddp.static_graph"}, moves("--static_graph")},
          {{"sync_batch_norm", "averaging"},
           "--sync_batch_norm has replicas normalise together, "
           "--average_parameters_every=2 train apart: give one"},
          {{"tensor_parallel", "reproducible"},
           "--tensor=2 has sums depend on how many ranks share a layer, which "
           "--reproducible cannot have: leave one out"},
          {{"tensor_parallel", "optimizer"},
           "--tensor=2 divides the matrices that --optimizer=muon steps whole: "
           "leave one out, or take --optimizer=adamw"},
          {{"tensor_parallel", "lora_rank"},
           "--tensor=2 divides layers without their adapters (--lora_rank=2): "
           "leave one out"},
          {{"tensor_parallel", "vocab_parallel"},
           "--tensor=2 and --vocab_parallel=2 both divide the vocabulary, one "
           "among ranks, the other among stages: leave one out"},
          {{"tensor_parallel", "strategy"},
           "--tensor=2 is for replicas of ranks that share layers, but "
           "--strategy=parameter_server was given: leave one out"},
          {{"updates_last", "averaging"},
           "--replace_replicas=1 goes on from any replica's parameters, which "
           "must be alike, but --average_parameters_every=2 was given: leave "
           "one out"},
          {{"updates_last", "shard"},
           "--replace_replicas=1 takes a lost rank's state from a neighbour, "
           "who must have all of it, but --shard=optimizer was given: leave "
           "one out"},
      };
  return *sentences;
}

TEST(ExcludedOptionsTest, WhatAPartExcludesItsFlagsRefuse) {
  size_t exclusions = 0;
  for (const StepPartRow* row : StepPartRows()) {
    if (row->exclusions.others.empty()) continue;
    ASSERT_EQ(FlagsOfParts().count(row->name), 1u) << row->name;
    for (const Exclusion& each : row->exclusions.others) {
      ASSERT_EQ(FlagsOfOptions().count(each.option), 1u) << each.option;
      TrainOptions options = Several();
      FlagsOfParts().at(row->name)(options);
      FlagsOfOptions().at(each.option)(options);
      const absl::Status status = Validate(options);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << row->name << " and " << each.option;
      ASSERT_EQ(Sentences().count({row->name, each.option}), 1u)
          << row->name << " and " << each.option;
      EXPECT_EQ(status.message(), Sentences().at({row->name, each.option}));
      ++exclusions;
    }
  }
  EXPECT_EQ(exclusions, Sentences().size());
}

TEST(ExcludedOptionsTest, WhatAsksForNothingIsTaken) {
  TrainOptions options = Several();
  options.pipeline.reproducible = true;
  options.pipeline.weight_gradient_batch = 1;
  ExpectOk(Validate(options));
}

}  // namespace
}  // namespace tandem::excluded_options_test
