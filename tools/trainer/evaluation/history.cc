#include "tools/trainer/evaluation/history.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

// NaN where the value was not finite, which JSON cannot say; false where it is
// no number.
bool ReadNumber(const Json& object, const char* name, double* value) {
  const auto found = object.find(name);
  if (found == object.end()) return false;
  if (found->is_null()) {
    *value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  if (!found->is_number()) return false;
  *value = found->get<double>();
  return true;
}

bool ReadEvaluation(absl::string_view line, Evaluation* evaluation) {
  const Json object = Json::parse(line.begin(), line.end(), nullptr,
                                  /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  const auto step = object.find("step");
  if (step == object.end() || !step->is_number_integer()) return false;
  evaluation->step = step->get<int64_t>();
  return evaluation->step >= 0 &&
         ReadNumber(object, "loss", &evaluation->loss) &&
         ReadNumber(object, "accuracy", &evaluation->accuracy);
}

}  // namespace

void EvaluationHistory::Add(const Evaluation& evaluation) {
  DropAfter(evaluation.step - 1);
  Append(evaluation);
}

void EvaluationHistory::Append(const Evaluation& evaluation) {
  if (IsBest(evaluation)) best_ = all_.size();
  all_.push_back(evaluation);
}

void EvaluationHistory::DropAfter(int64_t step) {
  if (last_step() <= step) return;
  best_.reset();
  for (const Evaluation& each : std::exchange(all_, {})) {
    if (each.step <= step) Append(each);
  }
}

// Whether it is better than all that there are.
bool EvaluationHistory::IsBest(const Evaluation& evaluation) const {
  const bool by_loss = by_ == BestBy::kLoss;
  if (!std::isfinite(by_loss ? evaluation.loss : evaluation.accuracy)) {
    return false;
  }
  if (best() == nullptr) return true;
  return by_loss ? evaluation.loss < best()->loss
                 : evaluation.accuracy > best()->accuracy;
}

bool EvaluationHistory::last_is_best() const {
  return best_ && *best_ + 1 == all_.size();
}

int64_t EvaluationHistory::count_since_best() const {
  return static_cast<int64_t>(best_ ? all_.size() - 1 - *best_ : all_.size());
}

std::string EvaluationHistory::ToText() const {
  std::string text;
  for (const Evaluation& each : all_) {
    const Json line = {
        {"step", each.step}, {"loss", each.loss}, {"accuracy", each.accuracy}};
    absl::StrAppend(&text, line.dump(), "\n");
  }
  return text;
}

absl::StatusOr<EvaluationHistory> EvaluationHistory::FromText(
    absl::string_view text, BestBy by) {
  EvaluationHistory history(by);
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    Evaluation evaluation;
    if (!ReadEvaluation(line, &evaluation) ||
        (!history.all_.empty() && evaluation.step <= history.last_step())) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number,
                       ": expected {\"step\":N,\"loss\":L,\"accuracy\":A} of a "
                       "later step than the line before"));
    }
    history.Append(evaluation);
  }
  return history;
}

}  // namespace tandem
