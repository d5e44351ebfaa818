// A model in one piece on each core of a rank, which talks to nobody: what a
// step's time is compared with.

#ifndef TANDEM_TOOLS_BENCH_RANK_ALONE_H_
#define TANDEM_TOOLS_BENCH_RANK_ALONE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/case/setting.h"
#include "tools/bench/rank/inputs.h"
#include "tools/bench/rank/trainer.h"

namespace tandem {

// Not thread-safe.
class AloneModels {
 public:
  // `inputs` must outlive it. Of the setting counts the recipe.
  static absl::StatusOr<std::unique_ptr<AloneModels>> Create(
      const Inputs& inputs, const Setting& setting, std::vector<int> cores);

  // Milliseconds of a step, a mean over the cores, which all compute for as
  // long as any of them does.
  absl::StatusOr<double> StepMs(int64_t count);

  // Of the first core, on the calling thread.
  Trainer& first() { return *trainers_.front(); }

 private:
  explicit AloneModels(std::vector<int> cores) : cores_(std::move(cores)) {}

  std::vector<int> cores_;
  std::vector<std::unique_ptr<Trainer>> trainers_;  // by core
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RANK_ALONE_H_
