#include "tests/e2e/train/pipeline_runs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "gtest/gtest.h"

namespace tandem {
namespace {

std::vector<double> LossesOf(const Events& events) {
  std::vector<double> losses;
  for (const char* kind : {"step", "eval"}) {
    for (const auto& event : EventsOf(events, kind)) {
      losses.push_back(event["loss"]);
    }
  }
  return losses;
}

}  // namespace

const std::vector<std::string>& PipelineModels() {
  static const auto* all = new std::vector<std::string>{
      "mlp_small", "gpt_tiny_tied", "unet_tiny", "mlp_dropout", "resnet18"};
  return *all;
}

Flags TinyJob(const std::string& model, const Flags& more) {
  Flags flags = SmallJob({"--model=" + model, "--batch_size=8",
                          "--synthetic_samples=32", "--synthetic_shape=3,8,8"});
  if (model == "gpt_tiny_tied") {
    flags =
        Joined(flags, {"--dataset=synthetic_tokens", "--synthetic_shape=8"});
  }
  if (model == "resnet18") flags.push_back("--synthetic_shape=3,32,32");
  return Joined(flags, more);
}

Flags Tiny(const std::string& model, const std::string& more) {
  return TinyJob(model, Words(more));
}

const std::vector<PipelinePlace>& PipelinePlaces() {
  static const auto* all = new std::vector<PipelinePlace>{
      {"2 devices", 2, {"--strategy=pipeline", "--devices_per_rank=2"}},
      {"2 simulated devices",
       2,
       {"--strategy=pipeline", "--devices_per_rank=2", "--device=sim"}},
      {"2 asynchronous devices",
       2,
       {"--strategy=pipeline", "--devices_per_rank=2", "--device=sim",
        "--sim_async", "--sim_delay_us=50", "--sim_delay_seed=7"}},
      {"2 ranks", 2, {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2"}},
      {"2 ranks over Gloo",
       2,
       {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2",
        "--backend=gloo"}},
      {"2 ranks with an asynchronous device each",
       2,
       {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2", "--device=sim",
        "--sim_async", "--sim_delay_us=50"}},
      {"2 ranks with 2 devices each",
       4,
       {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2",
        "--devices_per_rank=2"}},
      {"2 ranks with 2 asynchronous devices each",
       4,
       {"--strategy=pipeline", "--nproc_per_node=2", "--pipe=2",
        "--devices_per_rank=2", "--device=sim", "--sim_async",
        "--sim_delay_us=50"}},
  };
  return *all;
}

const PipelinePlace& PlaceNamed(const std::string& name) {
  for (const PipelinePlace& place : PipelinePlaces()) {
    if (place.name == name) return place;
  }
  ADD_FAILURE() << "no place is named " << name;
  std::abort();
}

double ExpectSameLosses(const Events& events, const Events& expected,
                        double tolerance, const std::string& name) {
  const std::vector<double> found = LossesOf(events);
  const std::vector<double> wanted = LossesOf(expected);
  EXPECT_EQ(found.size(), wanted.size()) << name;
  double worst = 0;
  for (size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    worst = std::max(worst, std::abs(found[i] - wanted[i]) / wanted[i]);
  }
  EXPECT_LE(worst, tolerance) << name;
  return worst;
}

}  // namespace tandem
