#include "tools/report/final_numbers.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tools/report/quantities.h"

namespace tandem {
namespace {

// The summary's number, or else the last evaluation's.
std::optional<double> TestNumber(const RunLog& run, const char* in_summary,
                                 const char* in_evaluation) {
  const auto number = NumberField(run.summary, in_summary);
  return number ? number : NumberField(run.evaluation, in_evaluation);
}

// "best 0.3211 at step 500", where an earlier evaluation was better than the
// last one.
std::string BestLoss(const RunLog& run) {
  const ThinnedSeries* const losses = run.EvaluationCurve("loss");
  if (losses == nullptr || !losses->last()) return "";
  SeriesPoint best = *losses->last();
  for (const SeriesBucket& bucket : losses->buckets()) {
    if (bucket.count > 0 && bucket.least.y < best.y) best = bucket.least;
  }
  if (best == *losses->last()) return "";
  return absl::StrCat("best ", ShownNumber(best.y), " at step ",
                      ShownCount(static_cast<int64_t>(best.x)));
}

std::optional<double> Perplexity(const RunLog& run) {
  if (!FindField(run.evaluation, "perplexity")) return std::nullopt;
  const auto loss = TestNumber(run, "test_loss", "loss");
  if (!loss) return std::nullopt;
  return std::exp(*loss);
}

std::optional<double> LastOf(const RunLog& run, const char* field) {
  const ThinnedSeries* const curve = run.Curve(field);
  if (curve == nullptr || !curve->last()) return std::nullopt;
  return curve->last()->y;
}

std::optional<double> MedianOf(const RunLog& run, const char* field) {
  const ThinnedSeries* const curve = run.Curve(field);
  return curve == nullptr ? std::nullopt : MedianMean(*curve);
}

std::optional<double> GreatestOf(const RunLog& run, const char* field) {
  const ThinnedSeries* const curve = run.Curve(field);
  std::optional<double> greatest;
  if (curve == nullptr) return greatest;
  for (const SeriesBucket& bucket : curve->buckets()) {
    if (bucket.count == 0) continue;
    if (!greatest || bucket.greatest.y > *greatest) {
      greatest = bucket.greatest.y;
    }
  }
  return greatest;
}

// A summary of no steps has zeros.
std::optional<double> AboveZero(std::optional<double> number) {
  return number && *number > 0 ? number : std::nullopt;
}

FinalNumber Rate(double value, const char* unit, const char* note) {
  return {"throughput", ShownNumber(value), unit, note};
}

// Nothing where there is none.
FinalNumber Throughput(const RunLog& run) {
  if (const auto tokens = AboveZero(MedianOf(run, "tokens_per_s"))) {
    return Rate(*tokens, "tokens/s", "median");
  }
  if (const auto mean = AboveZero(NumberField(run.summary, "samples_per_s"))) {
    return Rate(*mean, "samples/s", "mean");
  }
  if (const auto samples = AboveZero(MedianOf(run, "samples_per_s"))) {
    return Rate(*samples, "samples/s", "median");
  }
  return {};
}

}  // namespace

std::vector<FinalNumber> FinalNumbers(const RunLog& run) {
  std::vector<FinalNumber> numbers;
  const auto add = [&](const std::string& label, std::optional<double> number,
                       auto shown, const std::string& note = "") {
    if (number) numbers.push_back({label, shown(*number), "", note});
  };
  add("test loss", TestNumber(run, "test_loss", "loss"), ShownNumber,
      BestLoss(run));
  add("test perplexity", Perplexity(run), ShownNumber);
  add("test accuracy", TestNumber(run, "test_accuracy", "accuracy"),
      ShownPercent);
  add("training loss", LastOf(run, "loss"), ShownNumber, "last line");
  if (run.last_step > 0) {
    numbers.push_back(
        {"steps", ShownCount(run.last_step), "",
         run.skipped_steps > 0
             ? absl::StrCat(ShownCount(run.skipped_steps), " skipped")
             : ""});
  }
  const FinalNumber throughput = Throughput(run);
  if (!throughput.value.empty()) numbers.push_back(throughput);
  auto step_ms = AboveZero(NumberField(run.summary, "step_ms_median"));
  if (!step_ms) step_ms = AboveZero(MedianOf(run, "step_ms"));
  add(
      "step", step_ms, [](double ms) { return ShownSeconds(ms / 1e3); },
      "median");
  add("MFU", MedianOf(run, "mfu"), ShownPercent, "median");
  auto peak = NumberField(run.summary, "peak_rss_mib");
  if (!peak) peak = GreatestOf(run, "rss_mib");
  add("peak memory", peak, ShownMebibytes, "rank 0, host");
  if (run.seconds > 0) {
    numbers.push_back({"time", ShownSeconds(run.seconds), "",
                       run.resumes > 0 ? "of all sessions" : ""});
  }
  return numbers;
}

}  // namespace tandem
