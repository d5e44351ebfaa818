#include "tools/bench/case/train_flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

// Classes are drawn: at the workload's own rate a long epoch may diverge.
constexpr double kShareOfLearningRate = 0.1;

}  // namespace

std::vector<std::string> TrainFlags(const Workload& workload, int ranks,
                                    int64_t steps) {
  const int64_t batch = workload.batch_size * ranks;
  std::vector<std::string> flags = {
      absl::StrCat("--nproc_per_node=", ranks),
      absl::StrCat("--model=", workload.model),
      absl::StrCat("--dataset=",
                   workload.tokens ? "synthetic_tokens" : "synthetic"),
      absl::StrCat("--synthetic_shape=",
                   absl::StrJoin(workload.input_shape, ",")),
      absl::StrCat("--synthetic_samples=", batch * steps),
      absl::StrCat("--batch_size=", batch),
      absl::StrCat("--optimizer=", workload.optimizer),
      absl::StrCat("--learning_rate=",
                   workload.learning_rate * kShareOfLearningRate),
  };
  if (!workload.tokens) {
    flags.push_back(absl::StrCat("--synthetic_classes=", workload.classes));
  }
  return flags;
}

}  // namespace tandem
