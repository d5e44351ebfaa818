// A checkpoint of a pipeline goes on anywhere, and any checkpoint as a
// pipeline, as if nothing had stopped.

#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/train/pipeline_runs.h"

namespace tandem {
namespace {

// Model, optimizer.
using Recipe = std::tuple<std::string, const char*>;

class PipelineResumeTest : public testing::TestWithParam<Recipe> {};

// Four steps an epoch: step 3 is in the middle of the first.
TEST_P(PipelineResumeTest, ACheckpointGoesOnAnywhere) {
  const auto& [model, optimizer] = GetParam();
  const Flags job =
      TinyJob(model, {"--epochs=2", "--optimizer=" + std::string(optimizer)});
  const std::string straight = Fingerprint(RunJobForEvents(job));
  const Flags one = {"--microbatches=1"};
  const auto on = [&](const std::string& place) {
    return place.empty() ? Flags() : Joined(PlaceNamed(place).flags, one);
  };
  const std::string ranks = "2 ranks";
  const std::string devices = "2 devices";
  const std::string both = "2 ranks with 2 devices each";
  const std::vector<std::pair<std::string, std::string>> moves = {
      {ranks, ""}, {"", ranks}, {ranks, devices}, {devices, both}};
  for (const auto& [from, to] : moves) {
    const std::string folder = NewFolder("moved");
    RunJobForEvents(Joined(Joined(job, on(from)),
                           {"--save_dir=" + folder, "--save_every=3"}));
    const Events events = RunJobForEvents(Joined(
        Joined(job, on(to)), {"--resume=" + folder + "/step-000000003"}));
    EXPECT_EQ(EventsOf(events, "step").front()["step"], 4);
    EXPECT_EQ(Fingerprint(events), straight);
    std::cout << "cell: " << model << ", " << optimizer << ", from "
              << (from.empty() ? "1 device" : from) << " to "
              << (to.empty() ? "1 device" : to) << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(All, PipelineResumeTest,
                         testing::Combine(testing::Values("mlp_dropout",
                                                          "gpt_tiny_tied",
                                                          "resnet18"),
                                          testing::Values("sgd", "adamw")));

}  // namespace
}  // namespace tandem
