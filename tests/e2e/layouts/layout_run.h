// Trains one layout, every rank a thread, and keeps what each came to.

#ifndef TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_RUN_H_
#define TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_RUN_H_

#include <c10/core/Device.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "tests/e2e/layouts/layout_cell.h"
#include "tests/e2e/layouts/layout_mutation.h"

namespace tandem {

// What a rank has of one part of the model.
struct StageReport {
  int number = 0;
  int layers = 0;
  c10::Device device = c10::kCPU;
  std::thread::id thread;  // that works for it
  std::vector<std::string> parameters;
  // Where they lie; while every rank was at work.
  std::vector<const void*> storages;
};

struct RankReport {
  std::string strategy;
  std::string samples;  // a fingerprint of the first step's inputs, if it had
  std::vector<StageReport> stages;
  std::vector<double> losses;  // by step, of the whole batch
  // Parameters, buffers, and as "optimizer NAME" the optimizer's state.
  NamedTensors state;
  std::vector<std::string> unmoved;  // parameters that are what they were
};

// By rank that trains: of a parameter server's job the workers, which report
// its optimizer state.
using LayoutRun = std::vector<RankReport>;

// An error if a rank fails.
absl::StatusOr<LayoutRun> RunLayout(
    const LayoutCell& cell, LayoutMutation mutation = LayoutMutation::kNone);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_RUN_H_
