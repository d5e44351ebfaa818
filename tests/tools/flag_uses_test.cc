// Every flag of //tools:train, in every strategy: it does something there, or
// is refused by name, or stands on a list that says why neither.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/launch/launch.h"
#include "core/program/command_line.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trainer/job_check.h"

namespace tandem {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

struct Layout {
  std::string name;
  int ranks;
  Values flags;
};

const std::vector<Layout>& Layouts() {
  static const auto* const layouts = new std::vector<Layout>{
      {"single", 1, {}},
      {"ddp", 2, {}},
      {"data_parallel",
       1,
       {{"strategy", "data_parallel"}, {"devices_per_rank", "2"}}},
      {"model_parallel", 1, {{"devices_per_rank", "2"}}},
      {"pipeline", 1, {{"strategy", "pipeline"}, {"devices_per_rank", "2"}}},
      {"hybrid", 4, {{"pipe", "2"}}},
      {"parameter_server", 3, {{"strategy", "parameter_server"}}}};
  return *layouts;
}

using Names = std::set<std::string>;

const Names kAll = {"single",   "ddp",    "data_parallel",   "model_parallel",
                    "pipeline", "hybrid", "parameter_server"};
const Names kReplicas = {"ddp", "hybrid"};
const Names kPipelines = {"pipeline", "hybrid"};
const Names kServers = {"parameter_server"};

Names AllBut(const Names& others) {
  Names names;
  for (const std::string& each : kAll) {
    if (others.count(each) == 0) names.insert(each);
  }
  return names;
}

// A value that a flag does not have unless it is given, the flags without which
// it would do nothing, and where it does something.
struct Use {
  std::string value;
  Values needs = {};
  Names in = kAll;
};

const std::map<std::string, Use>& Uses() {
  const Values adam = {{"optimizer", "adam"}};
  const Values averaged = {{"average_parameters_every", "4"}};
  const Values clipped = {{"clip_grad_norm", "1"}};
  const Values fake = {{"device", "sim"}, {"fake_weights", "true"}};
  const Values fp16 = {{"dtype", "fp16"}};
  const Values images = {{"dataset", "synthetic"}};
  const Values join = {{"uneven_inputs", "join"}, {"drop_last", "false"}};
  const Values muon = {{"optimizer", "muon"}};
  const Values pixels = {{"dataset", "image_folder"}};
  const Values reproducible = {{"reproducible", "true"},
                               {"microbatch_size", "8"}};
  const Values samples = {{"sample_every", "5"}, {"prompt", "a"}};
  const Values sim = {{"device", "sim"}};
  const Values gpt = {{"model", "gpt_tiny"}, {"dataset", "synthetic_tokens"}};
  const Values whole_stages = {{"shard", "parameters"},
                               {"reshard_after_forward", "false"}};
  const Values shared_layers = {
      {"model", "gpt_tiny"}, {"dataset", "synthetic_tokens"}, {"tensor", "2"}};
  const Values text = {{"dataset", "tokens"}};
  const Values wsd = {{"lr_schedule", "wsd"}, {"lr_wsd_decay_steps", "5"}};
  const Names meshes = AllBut({"data_parallel", "parameter_server"});
  const Names in_step = AllBut({"parameter_server"});
  static const auto* const uses = new std::map<std::string, Use>{
      {"adam_beta1", {"0.8", adam}},
      {"adam_beta2", {"0.95", adam}},
      {"adam_eps", {"0.001", adam}},
      {"allow_missing", {"a", {{"init_from", "/w"}}}},
      {"allow_tf32", {"true", {{"device", "cuda"}}}},
      {"allow_unexpected", {"a", {{"init_from", "/w"}}}},
      {"amsgrad", {"true", adam}},
      {"async_save", {"true"}},
      {"augment", {"flip", pixels}},
      {"average_parameters_every", {"4", {}, kReplicas}},
      {"average_parameters_warmup_steps", {"2", averaged, kReplicas}},
      {"backoff_factor", {"0.25", fp16, in_step}},
      {"balance", {"uniform", {}, {"model_parallel", "pipeline", "hybrid"}}},
      {"batch_size", {"128"}},
      {"broadcast_buffers", {"false", {}, kReplicas}},
      {"bucket_cap_mb", {"5", {}, kReplicas}},
      {"buffer_dtype", {"bf16"}},
      {"check_finite", {"true"}},
      {"check_replicas_every", {"2", {}, kReplicas}},
      {"checkpoint_activations", {"always", {}, kPipelines}},
      {"checkpoint_every", {"2"}},
      {"checkpoint_layers", {"fc"}},
      {"chunks", {"4", {{"schedule", "looped_bfs"}}, kPipelines}},
      {"clip_grad_norm", {"1"}},
      {"clip_grad_norm_type", {"1", clipped}},
      {"clip_grad_value", {"1"}},
      {"comm_hook", {"fp16", {}, kReplicas}},
      {"context", {"64", text}},
      {"cudnn_benchmark", {"true", {{"device", "cuda"}}}},
      {"data_dir", {"/d"}},
      {"dataset", {"mnist"}},
      {"ddp_logging", {"true", {}, {"ddp", "hybrid", "parameter_server"}}},
      {"data_shard", {"1", {{"shard", "optimizer"}}, kReplicas}},
      {"deferred_batch_norm", {"true", {}, kPipelines}},
      {"delay_all_reduce_named_params",
       {"a", {{"param_to_hook_all_reduce", "b"}}, kReplicas}},
      {"device", {"sim"}},
      {"device_memory", {"1GiB", sim}},
      {"document_masks", {"true", text}},
      {"drop_last", {"false"}},
      {"dry_run", {"true"}},
      {"dropout", {"0.1"}},
      {"dtype", {"bf16"}},
      {"early_stopping_patience", {"2", {}, in_step}},
      {"ema_decay", {"0.9", {}, in_step}},
      {"end_of_text",
       {"5", {{"dataset", "tokens"}, {"document_masks", "true"}}}},
      {"epochs", {"2"}},
      {"error_if_nonfinite", {"true", clipped}},
      {"eval_batch_size", {"8"}},
      {"eval_batches", {"4"}},
      {"eval_every", {"5", {}, in_step}},
      {"eval_only", {"true", {{"resume", "/c"}}}},
      {"fake_weights", {"true", sim, meshes}},
      {"ffn_width", {"64"}},
      {"find_unused_parameters", {"true", {}, kReplicas}},
      {"flight_dir", {"/f"}},
      {"flight_entries", {"10"}},
      {"gradient_accumulation_steps",
       {"2", {}, AllBut({"pipeline", "hybrid"})}},
      {"gradient_groups", {"2", reproducible, meshes}},
      {"growth_factor", {"4", fp16, in_step}},
      {"growth_interval", {"10", fp16, in_step}},
      {"heads", {"2"}},
      {"histograms_every", {"2", {{"tensorboard_dir", "/t"}}, in_step}},
      {"image_mean", {"0.1,0.2,0.3", pixels}},
      {"image_resize", {"300", pixels}},
      {"image_size", {"64", pixels}},
      {"image_std", {"0.1,0.2,0.3", pixels}},
      {"init_from", {"/w"}},
      {"init_scale", {"4", fp16, in_step}},
      {"init_sync", {"false", {}, kReplicas}},
      {"intra_op_threads", {"2"}},
      {"join_divide_by", {"initial", join, kReplicas}},
      {"keep_best", {"loss", {}, in_step}},
      {"keep_every", {"4", {{"keep_last", "2"}}}},
      {"keep_last", {"2"}},
      {"kernel_cache", {"/k"}},
      {"kernels", {"fixed"}},
      {"kv_heads", {"2"}},
      {"label_smoothing", {"0.1"}},
      {"layers", {"2"}},
      {"learning_rate", {"0"}},
      {"log_dir", {"/l"}},
      {"log_every", {"5"}},
      {"lora_alpha", {"16", {{"lora_rank", "4"}}}},
      {"lora_dropout", {"0.1", {{"lora_rank", "4"}}}},
      {"lora_on", {"fc", {{"lora_rank", "4"}}}},
      {"lora_rank", {"4"}},
      {"loss_chunk", {"8", {}, AllBut({"data_parallel"})}},
      {"lr_gamma", {"0.5", {{"lr_schedule", "step"}, {"lr_step_size", "5"}}}},
      {"lr_schedule", {"cosine"}},
      {"lr_step_size", {"5", {{"lr_schedule", "step"}}}},
      {"lr_warmup_steps", {"2"}},
      {"lr_wsd_decay_steps", {"5", {{"lr_schedule", "wsd"}}}},
      {"lr_wsd_decay_style", {"sqrt", wsd}},
      {"max_new_tokens", {"5", samples, in_step}},
      {"max_staleness", {"1", {}, kServers}},
      {"max_steps", {"5"}},
      {"max_unsharded_stages", {"1", whole_stages, kReplicas}},
      {"metrics_file", {"/m"}},
      {"microbatch_size", {"8"}},
      {"microbatches", {"4", {}, kPipelines}},
      {"min_learning_rate", {"0.001", {{"lr_schedule", "cosine"}}}},
      {"misclassified_images", {"4", {{"tensorboard_dir", "/t"}}, in_step}},
      {"model", {"mlp_small"}},
      {"momentum", {"0.5"}},
      {"muon_adjust_lr", {"original", muon, in_step}},
      {"muon_learning_rate", {"0.02", muon, in_step}},
      {"muon_momentum", {"0.9", muon, in_step}},
      {"muon_nesterov", {"false", muon, in_step}},
      {"muon_ns_steps", {"3", muon, in_step}},
      {"nesterov", {"true"}},
      {"no_weight_decay_on", {"bias", {{"weight_decay", "0.1"}}}},
      {"optimizer", {"adam"}},
      {"outer_learning_rate",
       {"0.5", averaged, AllBut({"pipeline", "parameter_server"})}},
      {"outer_momentum",
       {"0.9", averaged, AllBut({"pipeline", "parameter_server"})}},
      {"param_to_hook_all_reduce",
       {"b", {{"delay_all_reduce_named_params", "a"}}, kReplicas}},
      {"parameters_to_ignore", {"a", {}, kReplicas}},
      {"peak_tflops", {"1"}},
      {"prompt", {"b", {{"sample_every", "5"}}, in_step}},
      {"prometheus_file", {"/m.prom"}},
      {"reduce_dtype", {"bf16", {}, kReplicas}},
      {"replace_replicas", {"1", {}, kReplicas}},
      {"report", {"/page.html"}},
      {"reproducible", {"true", {{"microbatch_size", "8"}}, meshes}},
      {"reshard_after_forward",
       {"false", {{"shard", "parameters"}}, kReplicas}},
      {"resume", {"/c"}},
      {"save_dir", {"/s"}},
      {"sample_every", {"5", {{"prompt", "a"}}, in_step}},
      {"save_every", {"5"}},
      {"save_every_epochs", {"2"}},
      {"schedule", {"gpipe", {}, kPipelines}},
      {"seed", {"1"}},
      {"servers", {"2", {}, kServers}},
      {"shard", {"optimizer", {}, kReplicas}},
      {"shard_min_num_params", {"1", {{"shard", "parameters"}}, kReplicas}},
      {"sequence_parallel", {"false", shared_layers, kReplicas}},
      {"share_devices", {"true", sim}},
      {"show_settings", {"true"}},
      {"sim_async", {"true", sim}},
      {"sim_delay_seed",
       {"5",
        {{"device", "sim"}, {"sim_async", "true"}, {"sim_delay_us", "5"}}}},
      {"sim_delay_us", {"5", {{"device", "sim"}, {"sim_async", "true"}}}},
      {"sim_memory_bandwidth", {"1", fake, meshes}},
      {"skip_all_reduce_unused_params", {"true", {}, kReplicas}},
      {"skip_nonfinite", {"true", {}, in_step}},
      {"static_graph", {"true", {}, kReplicas}},
      {"sync_batch_norm", {"true", {}, kReplicas}},
      {"synthetic_classes", {"5", images}},
      {"synthetic_samples", {"100", images}},
      {"synthetic_shape", {"1,8,8", images}},
      {"token_bytes", {"4", text}},
      {"tokens_per_step", {"8192", text}},
      {"temperature", {"0", samples, in_step}},
      {"tensor", {"2", gpt, kReplicas}},
      {"tensorboard_dir", {"/t"}},
      {"trace_file", {"/t", {}, in_step}},
      {"trace_steps", {"2", {{"trace_file", "/t"}}, in_step}},
      {"uneven_inputs", {"join", {{"drop_last", "false"}}, kReplicas}},
      {"vocab_parallel", {"2", {}, meshes}},
      {"vocabulary", {"100", text}},
      {"weight_decay", {"0.1"}},
      {"weight_gradient_batch", {"2", {}, kPipelines}},
      {"width", {"64"}},
      {"workers", {"2"}},
      {"z_loss", {"0.1"}},
  };
  return *uses;
}

// What is taken though it may do nothing, by the reason.
const std::map<std::string, Names>& Exceptions() {
  static const auto* const exceptions = new std::map<std::string, Names>{
      {"makes the layouts that the others are tried in",
       {"devices_per_rank", "nproc_per_node", "pipe", "strategy"}},
      {"says where this process stands or where ranks meet, which "
       "core/launch/resolve_launch checks",
       {"dist_url", "job_secret_file", "local_rank", "master_addr",
        "master_port", "max_ranks", "min_ranks", "nnodes", "node_rank", "rank",
        "world_size"}},
      {"is of what may happen, and need not: restarts, stops, late ranks",
       {"join_timeout", "max_restarts", "restart_delay", "stop_grace",
        "straggler_warning", "timeout"}},
      {"is of traffic between ranks or devices: of one there is none, and the "
       "same flags serve any number",
       {"backend", "interface", "sim_link_bandwidth", "sim_network_bandwidth"}},
      {"is of convolutions: which a model has is known when it is made",
       {"channels_last"}},
  };
  return *exceptions;
}

void Set(const std::string& flag, const std::string& value) {
  absl::CommandLineFlag* const found = absl::FindCommandLineFlag(flag);
  ASSERT_NE(found, nullptr) << flag;
  std::string error;
  ASSERT_TRUE(found->ParseFrom(value, &error))
      << flag << "=" << value << ": " << error;
}

void Set(const Values& values) {
  for (const auto& [flag, value] : values) Set(flag, value);
}

// What the launcher of so many ranks says of it.
absl::Status Check(const Layout& layout) {
  Launch first;
  first.world_size = layout.ranks;
  first.local_world_size = layout.ranks;
  first.launcher = layout.ranks == 1 ? "none" : "tandem";
  return CheckJob(first);
}

TEST(FlagUsesTest, EveryFlagHasAUseOrAReason) {
  std::map<std::string, int> named;
  for (const auto& [flag, use] : Uses()) ++named[flag];
  for (const auto& [reason, flags] : Exceptions()) {
    EXPECT_NE(reason, "");
    for (const std::string& flag : flags) ++named[flag];
  }
  const std::map<std::string, std::string> flags = FlagValues();
  for (const auto& [flag, value] : flags) {
    EXPECT_EQ(named[flag], 1)
        << "--" << flag << ": say above where it does something";
  }
  for (const auto& [flag, count] : named) {
    EXPECT_EQ(flags.count(flag), 1u) << "--" << flag << " is no flag";
  }
}

TEST(FlagUsesTest, TheLayoutsAreJobs) {
  for (const Layout& layout : Layouts()) {
    const absl::FlagSaver undo;
    Set(layout.flags);
    EXPECT_TRUE(Check(layout).ok()) << layout.name << ": " << Check(layout);
  }
}

TEST(FlagUsesTest, InEveryStrategyItDoesSomethingOrIsRefusedByName) {
  int used = 0, refused = 0;
  for (const auto& [flag, use] : Uses()) {
    for (const Layout& layout : Layouts()) {
      const absl::FlagSaver undo;
      Set(layout.flags);
      Set(use.needs);
      Set(flag, use.value);
      const absl::Status checked = Check(layout);
      if (use.in.count(layout.name) > 0) {
        EXPECT_TRUE(checked.ok())
            << "--" << flag << " in " << layout.name << ": " << checked;
        ++used;
        continue;
      }
      // It, or what it needs.
      bool is_named = absl::StrContains(checked.message(), "--" + flag);
      for (const auto& [need, value] : use.needs) {
        is_named = is_named || absl::StrContains(checked.message(),
                                                 absl::StrCat("--", need));
      }
      EXPECT_FALSE(checked.ok()) << "--" << flag << " in " << layout.name
                                 << " does nothing, and is taken";
      EXPECT_TRUE(is_named) << "--" << flag << ": " << checked;
      ++refused;
    }
  }
  std::cout << used << " uses, " << refused << " refusals\n";
  EXPECT_EQ(used + refused, static_cast<int>(Uses().size() * kAll.size()));
}

TEST(FlagUsesTest, WithoutWhatItNeedsItIsRefusedByName) {
  for (const auto& [flag, use] : Uses()) {
    if (use.needs.empty()) continue;
    for (const Layout& layout : Layouts()) {
      if (use.in.count(layout.name) == 0) continue;
      const absl::FlagSaver undo;
      Set(layout.flags);
      Set(flag, use.value);
      const absl::Status checked = Check(layout);
      EXPECT_FALSE(checked.ok()) << "--" << flag << " in " << layout.name;
      EXPECT_THAT(checked, Says("--" + flag));
    }
  }
}

// Ranks that are lost and come back, or another launcher's.
TEST(FlagUsesTest, AJobThatHappensToHaveOneReplicaIsNoMistake) {
  const absl::FlagSaver undo;
  Set("comm_hook", "fp16");
  const Layout one = {"single", 1, {}};
  EXPECT_THAT(Check(one), Says("--comm_hook=fp16"));
  Launch others;
  others.launcher = "torchrun";
  ExpectOk(CheckJob(others));
  Set("min_ranks", "1");
  ExpectOk(Check(one));
}

}  // namespace
}  // namespace tandem
