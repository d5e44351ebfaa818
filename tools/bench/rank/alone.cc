#include "tools/bench/rank/alone.h"

#include <atomic>

#include "absl/memory/memory.h"
#include "core/base/status_macros.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/usage.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<AloneModels>> AloneModels::Create(
    const Inputs& inputs, const Setting& setting, std::vector<int> cores) {
  auto models = absl::WrapUnique(new AloneModels(std::move(cores)));
  Setting whole;
  whole.recipe = setting.recipe;
  for (int core : models->cores_) {
    TANDEM_ASSIGN_OR_RETURN(
        models->trainers_.emplace_back(),
        Trainer::Create(inputs, whole, {{core}, 1, nullptr}));
    TANDEM_RETURN_IF_ERROR(models->trainers_.back()->Steps(2));
  }
  return models;
}

absl::StatusOr<double> AloneModels::StepMs(int64_t count) {
  std::atomic<size_t> done{0};
  std::vector<double> ms(cores_.size());
  TANDEM_RETURN_IF_ERROR(OnEachCore(cores_, [&](size_t i) {
    TANDEM_RETURN_IF_ERROR(trainers_[i]->Step().status());
    const Usage before = Usage::Now();
    const absl::Status status = trainers_[i]->Steps(count);
    ms[i] = (Usage::Now() - before).wall_ms / static_cast<double>(count);
    // Whoever is through first keeps its core busy until the others are.
    for (++done; status.ok() && done < cores_.size();) {
      TANDEM_RETURN_IF_ERROR(trainers_[i]->Step().status());
    }
    return status;
  }));
  double sum = 0;
  for (double each : ms) sum += each;
  return sum / static_cast<double>(ms.size());
}

}  // namespace tandem
