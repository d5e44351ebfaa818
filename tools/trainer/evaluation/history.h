// Evaluation history of a job: what each evaluation came to, which one was the
// best, and how many came since.

#ifndef TANDEM_TOOLS_TRAINER_EVALUATION_HISTORY_H_
#define TANDEM_TOOLS_TRAINER_EVALUATION_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// The file of --save_dir that has it.
inline constexpr char kHistoryFile[] = "evaluations.json";

struct Evaluation {
  int64_t step = 0;  // steps done
  double loss = 0;
  double accuracy = 0;
};

// By which value an evaluation is better than another.
enum class BestBy { kLoss, kAccuracy };

// Evaluations in the order of their steps. Not thread-safe.
class EvaluationHistory {
 public:
  explicit EvaluationHistory(BestBy by = BestBy::kLoss) : by_(by) {}

  // An evaluation of a later step than the last one; of the same step, it
  // takes that one's place.
  void Add(const Evaluation& evaluation);
  // Drops evaluations of later steps than `step`, from which a job goes on.
  void DropAfter(int64_t step);

  // The first of the best ones; null: there is none whose value is finite. It,
  // and what follows from it, is known: a job may ask in each step.
  const Evaluation* best() const { return best_ ? &all_[*best_] : nullptr; }
  // Whether the last one is better than all before it.
  bool last_is_best() const;
  // Evaluations since the best one; all of them, where there is none.
  int64_t count_since_best() const;
  // Steps done at the last one; 0: there is none.
  int64_t last_step() const { return all_.empty() ? 0 : all_.back().step; }

  // A JSON object a line, the first evaluation first. Values that are not
  // finite are null.
  std::string ToText() const;
  // InvalidArgument, with the line's number, for what ToText has not written.
  static absl::StatusOr<EvaluationHistory> FromText(absl::string_view text,
                                                    BestBy by);

 private:
  void Append(const Evaluation& evaluation);
  bool IsBest(const Evaluation& evaluation) const;

  BestBy by_;
  std::vector<Evaluation> all_;
  std::optional<size_t> best_;  // where among them
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_EVALUATION_HISTORY_H_
