#include "tools/trainer/rehearsal/rehearsal_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/testing/statuses.h"

namespace tandem::rehearsal_settings_test {
namespace {

TrainOptions OnSim() {
  TrainOptions options;
  options.devices.device = "sim";
  return options;
}

RehearsalSettings Rehearsal() {
  RehearsalSettings settings;
  settings.fake_weights = true;
  return settings;
}

struct Misfit {
  std::string flag;
  std::function<void(TrainOptions&)> give;
};

std::vector<Misfit> Misfits() {
  return {
      {"--device=sim, not cpu", [](auto& o) { o.devices.device = "cpu"; }},
      {"--device=sim, not cuda", [](auto& o) { o.devices.device = "cuda"; }},
      {"--devices_per_rank=16",
       [](auto& o) { o.devices.devices_per_rank = 16; }},
      {"--backend=sim_nccl", [](auto& o) { o.backend = "sim_nccl"; }},
      {"--sim_async", [](auto& o) { o.devices.sim_async = true; }},
      {"--share_devices", [](auto& o) { o.devices.share_devices = true; }},
      {"--eval_only", [](auto& o) { o.eval_only = true; }},
      {"--resume", [](auto& o) { o.resume = "/checkpoint"; }},
      {"--init_from", [](auto& o) { o.init_from = "/weights"; }},
      {"--check_finite", [](auto& o) { o.check_finite = true; }},
      {"--check_replicas_every", [](auto& o) { o.check_replicas_every = 1; }},
      {"--save_dir", [](auto& o) { o.save_dir = "/folder"; }},
      {"--save_every", [](auto& o) { o.save_every = 5; }},
      {"--save_every_epochs", [](auto& o) { o.save_every_epochs = 0; }},
      {"--metrics_file", [](auto& o) { o.metrics_file = "/metrics"; }},
      {"--report", [](auto& o) { o.report = "/page"; }},
      {"--prometheus_file", [](auto& o) { o.prometheus_file = "/m.prom"; }},
      {"--tensorboard_dir", [](auto& o) { o.tensorboard_dir = "/board"; }},
      {"--trace_file", [](auto& o) { o.trace_file = "/trace"; }},
      {"--kernels=measured", [](auto& o) { o.kernels = "measured"; }},
      {"--balance=profile", [](auto& o) { o.pipeline.balance = "profile"; }},
      {"--microbatches=auto", [](auto& o) { o.pipeline.microbatches.reset(); }},
      {"--strategy=data_parallel",
       [](auto& o) { o.strategy = "data_parallel"; }},
      {"--strategy=parameter_server",
       [](auto& o) { o.strategy = "parameter_server"; }},
      {"--replace_replicas", [](auto& o) { o.replace_replicas = 1; }},
  };
}

TEST(CheckRehearsalTest, WhatGoesTogetherIsTaken) {
  EXPECT_TRUE(CheckRehearsal(Rehearsal(), OnSim()).ok());
  TrainOptions options = OnSim();
  options.devices.devices_per_rank = 15;
  options.devices.device_memory = "80GiB";
  options.save_dir = "";
  EXPECT_TRUE(CheckRehearsal(Rehearsal(), options).ok());
}

TEST(CheckRehearsalTest, WhatDoesNotIsNamed) {
  for (const Misfit& each : Misfits()) {
    TrainOptions options = OnSim();
    each.give(options);
    const absl::Status status = CheckRehearsal(Rehearsal(), options);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << each.flag << ": " << status;
    EXPECT_THAT(status, Says("--fake_weights", each.flag));
    // A job that is no rehearsal is not asked.
    EXPECT_TRUE(CheckRehearsal(RehearsalSettings(), options).ok());
  }
}

TEST(CheckRehearsalTest, ABandwidthIsPositiveAndForARehearsal) {
  for (double RehearsalSettings::*bandwidth :
       {&RehearsalSettings::memory_bandwidth,
        &RehearsalSettings::link_bandwidth,
        &RehearsalSettings::network_bandwidth}) {
    RehearsalSettings settings;
    settings.*bandwidth = 1e9;
    EXPECT_TRUE(absl::IsInvalidArgument(CheckRehearsal(settings, OnSim())));
    settings.fake_weights = true;
    EXPECT_TRUE(CheckRehearsal(settings, OnSim()).ok());
    settings.*bandwidth = -1;
    EXPECT_TRUE(absl::IsInvalidArgument(CheckRehearsal(settings, OnSim())));
  }
}

}  // namespace
}  // namespace tandem::rehearsal_settings_test
