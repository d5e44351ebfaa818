#include "tools/trainer/evaluation/history.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

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
  all_.push_back(evaluation);
}

void EvaluationHistory::DropAfter(int64_t step) {
  while (!all_.empty() && all_.back().step > step) all_.pop_back();
}

bool EvaluationHistory::IsBetter(const Evaluation& one,
                                 const Evaluation& other) const {
  return by_ == BestBy::kLoss ? one.loss < other.loss
                              : one.accuracy > other.accuracy;
}

const Evaluation* EvaluationHistory::best() const {
  const Evaluation* best = nullptr;
  for (const Evaluation& each : all_) {
    const double value = by_ == BestBy::kLoss ? each.loss : each.accuracy;
    if (!std::isfinite(value)) continue;
    if (best == nullptr || IsBetter(each, *best)) best = &each;
  }
  return best;
}

bool EvaluationHistory::last_is_best() const {
  return !all_.empty() && best() == &all_.back();
}

int64_t EvaluationHistory::count_since_best() const {
  const Evaluation* const found = best();
  const auto count = static_cast<int64_t>(all_.size());
  return found == nullptr ? count : count - 1 - (found - all_.data());
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
    history.all_.push_back(evaluation);
  }
  return history;
}

}  // namespace tandem
