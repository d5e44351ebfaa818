// What must be true of a layout's run.

#ifndef TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_CHECK_H_
#define TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/e2e/layouts/layout_cell.h"
#include "tests/e2e/layouts/layout_mutation.h"
#include "tests/e2e/layouts/layout_run.h"

namespace tandem {

// Where the bits of a run's losses and state, on any rank, are not one
// device's: "loss of step 3", "fc.weight on rank 2". Each replica must have all
// of the model, once.
std::vector<std::string> Differences(const LayoutCell& cell,
                                     const LayoutRun& run,
                                     const LayoutRun& one_device);

// What was not as distinct as the layout says: stages' layers, parameters,
// memory, threads and (simulated) devices; replicas' samples.
std::vector<std::string> Confusions(const LayoutCell& cell,
                                    const LayoutRun& run);

// Parameters that training has not changed, and losses that are no numbers.
std::vector<std::string> Idleness(const LayoutRun& run);

struct LayoutResult {
  std::vector<std::string> differences;
  std::vector<std::string> others;  // Confusions, then Idleness
};

// Runs a cell, and, the first time that it is needed, one device with its model
// and accumulation. Not thread-safe. An error if a run fails.
absl::StatusOr<LayoutResult> TryLayout(
    const LayoutCell& cell, LayoutMutation mutation = LayoutMutation::kNone);

// The run that a cell is compared with.
absl::StatusOr<const LayoutRun*> OneDevicesRun(const LayoutCell& cell);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_CHECK_H_
