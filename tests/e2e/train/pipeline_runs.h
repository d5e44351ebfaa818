// Jobs of --strategy=pipeline, and the places where a pipeline can be. For
// tests.

#ifndef TANDEM_TESTS_E2E_TRAIN_PIPELINE_RUNS_H_
#define TANDEM_TESTS_E2E_TRAIN_PIPELINE_RUNS_H_

#include <string>
#include <vector>

#include "tests/e2e/train/runs.h"

namespace tandem {

// The models that make a cut hard, and a plain one: mlp_small, gpt_tiny_tied
// (tied weights), unet_tiny (skips), mlp_dropout, resnet18 (BatchNorm).
const std::vector<std::string>& PipelineModels();

// Some steps of `model` on tiny synthetic data, and an evaluation: of one
// device, unless flags of a place follow.
Flags TinyJob(const std::string& model, const Flags& more = {});
// With flags as one types them.
Flags Tiny(const std::string& model, const std::string& more = "");

// The epoch of TinyJob, in steps.
constexpr int kTinySteps = 4;

// Where a pipeline is.
struct PipelinePlace {
  std::string name;
  int devices;  // in all
  Flags flags;
};

// Devices of one process, simulated and not, ranks, and both.
const std::vector<PipelinePlace>& PipelinePlaces();
// The first, by name.
const PipelinePlace& PlaceNamed(const std::string& name);

// What both runs report in each step and evaluation is the same, to this
// relative difference; returns the largest.
double ExpectSameLosses(const Events& events, const Events& expected,
                        double tolerance, const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TRAIN_PIPELINE_RUNS_H_
