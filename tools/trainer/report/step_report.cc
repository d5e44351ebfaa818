#include "tools/trainer/report/step_report.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/trainer/report/shown.h"

namespace tandem {
namespace {

// "1:02:03".
std::string Clock(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60,
                         whole % 60);
}

// "12.3 GFLOP/s".
std::string DescribeFlops(double flops_per_s) {
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t i = 0;
  for (; flops_per_s >= 1000 && i + 1 < std::size(prefixes); ++i) {
    flops_per_s /= 1000;
  }
  return absl::StrFormat("%.3g %sFLOP/s", flops_per_s, prefixes[i]);
}

// What follows the throughput; empty: it is not known.
std::string DescribeUse(const StepReport& step) {
  std::string use;
  if (step.flops_per_s > 0) {
    absl::StrAppend(&use, "  ", DescribeFlops(step.flops_per_s));
  }
  if (step.utilization > 0) {
    absl::StrAppendFormat(&use, "  MFU %.1f %%", 100 * step.utilization);
  }
  return use;
}

bool IsText(const StepReport& step) { return step.tokens_per_s > 0; }

// What follows the loss.
std::string DescribeLosses(const StepReport& step) {
  std::string added;
  for (const auto& [name, mean] : step.auxiliary_losses) {
    absl::StrAppendFormat(&added, "  %s %.4g", name, Shown(mean));
  }
  added += DescribeSums(step.sums);
  if (IsText(step)) {
    absl::StrAppendFormat(&added, "  perplexity %.4g",
                          Shown(std::exp(step.score.loss())));
  }
  return added;
}

}  // namespace

std::string DescribeSums(const std::map<std::string, double>& sums) {
  std::string text;
  for (const auto& [name, sum] : sums) {
    absl::StrAppendFormat(&text, "  %s %.6g", name, Shown(sum));
  }
  return text;
}

std::string LineOf(const StepReport& step, int64_t steps_in_all) {
  const std::string norm =
      step.gradient_norm
          ? absl::StrFormat("  gradient norm %.4g", Shown(*step.gradient_norm))
          : "";
  return absl::StrFormat(
      "epoch %d  step %*d/%d  loss %.4f%s  accuracy %5.2f %%  lr %.3g%s  "
      "%.0f %s/s%s  %.1f ms  %s left  %.0f MiB",
      step.epoch, static_cast<int>(absl::StrCat(steps_in_all).size()),
      step.step, steps_in_all, Shown(step.score.loss()), DescribeLosses(step),
      100 * step.score.accuracy(), step.learning_rate, norm,
      IsText(step) ? step.tokens_per_s : step.samples_per_s,
      IsText(step) ? "tokens" : "samples", DescribeUse(step), step.step_ms,
      Clock(step.left_s), step.rss_mib);
}

nlohmann::ordered_json FieldsOf(const StepReport& step) {
  nlohmann::ordered_json fields = {{"epoch", step.epoch},
                                   {"step", step.step},
                                   {"samples", step.samples},
                                   {"loss", step.score.loss()},
                                   {"accuracy", step.score.accuracy()},
                                   {"learning_rate", step.learning_rate},
                                   {"samples_per_s", step.samples_per_s},
                                   {"step_ms", step.step_ms},
                                   {"left_s", step.left_s},
                                   {"rss_mib", step.rss_mib}};
  if (IsText(step)) {
    fields["tokens"] = step.tokens;
    fields["tokens_per_s"] = step.tokens_per_s;
    fields["perplexity"] = std::exp(step.score.loss());
  }
  if (step.gradient_norm) fields["gradient_norm"] = *step.gradient_norm;
  if (step.flops_per_s > 0) fields["flops_per_s"] = step.flops_per_s;
  if (step.utilization > 0) fields["mfu"] = step.utilization;
  for (const auto& [name, mean] : step.auxiliary_losses) {
    fields["auxiliary_losses"][name] = mean;
  }
  if (!step.sums.empty()) fields["sums"] = step.sums;
  if (step.loss_scale > 0) fields["loss_scale"] = step.loss_scale;
  return fields;
}

}  // namespace tandem
