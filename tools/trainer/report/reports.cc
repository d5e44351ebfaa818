#include "tools/trainer/report/reports.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tandem {

using Json = nlohmann::ordered_json;

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

// The text that follows the throughput; empty: FLOP/s are not known.
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

// "  NAME SUM" of each.
std::string DescribeSums(const std::map<std::string, double>& sums) {
  std::string text;
  for (const auto& [name, sum] : sums) {
    absl::StrAppendFormat(&text, "  %s %.6g", name, Shown(sum));
  }
  return text;
}

// The text that follows the loss.
std::string DescribeLosses(const StepReport& step) {
  std::string added;
  for (const auto& [name, mean] : step.auxiliary_losses) {
    absl::StrAppendFormat(&added, "  %s %.4g", name, Shown(mean));
  }
  added += DescribeSums(step.sums);
  if (const auto perplexity = TrainingPerplexity(step)) {
    absl::StrAppendFormat(&added, "  perplexity %.4g", Shown(*perplexity));
  }
  return added;
}

// "none", or "copy to the host: 1.00, event: 0.25".
std::string DescribeWaits(const std::map<std::string, double>& waits) {
  if (waits.empty()) return "none";
  return absl::StrJoin(waits, ", ", [](std::string* text, const auto& each) {
    absl::StrAppendFormat(text, "%s: %.2f", each.first, each.second);
  });
}

// A line of the summary.
std::string Row(const std::string& label, const std::string& text) {
  return absl::StrFormat("  %-18s %s", label, text);
}

}  // namespace

std::optional<double> TrainingPerplexity(const StepReport& step) {
  if (!IsText(step) || step.is_smoothed) return std::nullopt;
  return std::exp(step.score.loss());
}

std::string ReportLine(const StepReport& step, int64_t steps_in_all) {
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

Json ReportFields(const StepReport& step) {
  Json fields = {{"epoch", step.epoch},
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
  }
  if (const auto perplexity = TrainingPerplexity(step)) {
    fields["perplexity"] = *perplexity;
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

std::string ReportLine(const SkippedStepReport& skipped) {
  return absl::StrFormat(
      "step %d was skipped: its gradients are not finite%s (%d skipped in all)",
      skipped.step,
      skipped.loss_scale > 0
          ? absl::StrFormat("; the loss is scaled by %.10g from now on",
                            skipped.loss_scale)
          : "",
      skipped.skipped_steps);
}

Json ReportFields(const SkippedStepReport& skipped) {
  Json fields = {{"step", skipped.step},
                 {"skipped_steps", skipped.skipped_steps}};
  if (skipped.loss_scale > 0) fields["loss_scale"] = skipped.loss_scale;
  return fields;
}

namespace {

// When it was, which of one that stands alone need not be said.
std::string DescribeMoment(const EvaluationReport& evaluation) {
  if (evaluation.is_alone) return "";
  return evaluation.within_epoch
             ? absl::StrFormat("step %d  ", evaluation.step)
             : absl::StrFormat("epoch %d  ", evaluation.epoch);
}

// The text that follows the loss of a text.
std::string DescribePerplexity(const EvaluationReport& evaluation) {
  if (!evaluation.is_text) return "";
  std::string text = absl::StrFormat("  perplexity %.4g",
                                     Shown(std::exp(evaluation.score.loss())));
  if (evaluation.bits_per_byte != 0) {
    absl::StrAppendFormat(&text, "  %.4f bits a byte",
                          Shown(evaluation.bits_per_byte));
  }
  return text;
}

}  // namespace

std::string ReportLine(const EvaluationReport& evaluation) {
  const Score& score = evaluation.score;
  return absl::StrFormat(
      "%stest: loss %.4f%s%s  accuracy %.2f %%  (%d predictions)%s",
      DescribeMoment(evaluation), Shown(score.loss()),
      DescribePerplexity(evaluation), DescribeSums(evaluation.sums),
      100 * score.accuracy(), score.count,
      evaluation.is_best ? "  the best so far" : "");
}

Json ReportFields(const EvaluationReport& evaluation) {
  const Score& score = evaluation.score;
  Json fields = {{"epoch", evaluation.epoch},
                 {"step", evaluation.step},
                 {"loss", score.loss()},
                 {"accuracy", score.accuracy()},
                 {"count", score.count}};
  if (evaluation.samples > 0) fields["samples"] = evaluation.samples;
  if (evaluation.tokens > 0) fields["tokens"] = evaluation.tokens;
  if (evaluation.is_text) fields["perplexity"] = std::exp(score.loss());
  if (evaluation.bits_per_byte != 0) {
    fields["bits_per_byte"] = evaluation.bits_per_byte;
  }
  if (evaluation.is_best) fields["is_best"] = true;
  if (!evaluation.sums.empty()) fields["sums"] = evaluation.sums;
  return fields;
}

RankTimes SlowestRanks(std::vector<RankReport> ranks) {
  RankTimes times;
  std::erase_if(ranks,
                [](const RankReport& each) { return !(each.step_ms > 0); });
  if (ranks.empty()) return times;
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const RankReport& one, const RankReport& other) {
                     return one.step_ms > other.step_ms;
                   });
  const size_t last = ranks.size() - 1;
  times.median_ms =
      (ranks[last / 2].step_ms + ranks[(last + 1) / 2].step_ms) / 2;
  ranks.resize(std::min(ranks.size(), kMostSlowestRanks));
  times.slowest = std::move(ranks);
  return times;
}

std::vector<std::string> ReportLines(const SampleReport& sample) {
  return {absl::StrFormat("step %d  sample:", sample.step), sample.text};
}

Json ReportFields(const SampleReport& sample) {
  return {{"step", sample.step}, {"text", sample.text}};
}

namespace {

// "97.10 %, loss 0.1234", and of a text its perplexity instead of accuracy.
std::string DescribeResult(const EvaluationReport& evaluation) {
  const Score& score = evaluation.score;
  return absl::StrFormat("%.2f %%, loss %.4f%s", 100 * score.accuracy(),
                         Shown(score.loss()), DescribePerplexity(evaluation));
}

}  // namespace

std::vector<std::string> ReportLines(const SummaryReport& summary) {
  std::vector<std::string> lines = {"summary"};
  const auto add = [&](bool is_known, const std::string& label,
                       const std::string& text) {
    if (is_known) lines.push_back(Row(label, text));
  };
  add(summary.evaluation.score.count > 0, "test accuracy",
      DescribeResult(summary.evaluation));
  if (summary.best) {
    const BestReport& best = *summary.best;
    add(true, "best evaluation",
        absl::StrFormat("after step %d: accuracy %.2f %%, loss %.4f%s",
                        best.step, 100 * best.accuracy, Shown(best.loss),
                        best.checkpoint.empty()
                            ? ""
                            : absl::StrCat(", ", best.checkpoint)));
  }
  add(summary.steps > 0, "training",
      absl::StrFormat("%d steps, %.0f samples/s, %.1f ms a step (median)",
                      summary.steps, summary.samples_per_s,
                      summary.step_ms_median));
  add(summary.skipped_steps > 0, "skipped",
      absl::StrFormat("%d steps", summary.skipped_steps));
  add(summary.steps > 0, "start to first step",
      absl::StrFormat("%.0f ms", summary.startup_ms));
  add(true, "peak memory", absl::StrFormat("%.0f MiB", summary.peak_rss_mib));
  for (const auto& [device, peak] : summary.device_memory) {
    add(true, absl::StrCat("peak on ", device), peak);
  }
  if (summary.host_waits) {
    add(true, "host waits a step", DescribeWaits(*summary.host_waits));
  }
  add(true, "weights_sha256", summary.weights_sha256);
  for (const auto& [name, value] : summary.measurements) {
    lines.push_back(absl::StrFormat("  %s %.0f", name, value));
  }
  add(summary.saves > 0, "saving",
      absl::StrFormat("%d time%s, %.1f ms in all", summary.saves,
                      summary.saves == 1 ? "" : "s", summary.save_stall_ms));
  add(!summary.checkpoint.empty(), "checkpoint", summary.checkpoint);
  if (summary.advice.empty()) return lines;
  lines.push_back("what to try next: give your flags again, and");
  for (const auto& [what, flags] : summary.advice) add(true, what, flags);
  return lines;
}

Json ReportFields(const SummaryReport& summary) {
  Json fields = Json::object();
  const EvaluationReport& test = summary.evaluation;
  if (test.score.count > 0) {
    fields.update({{"test_accuracy", test.score.accuracy()},
                   {"test_loss", test.score.loss()}});
    if (test.is_text) fields["test_perplexity"] = std::exp(test.score.loss());
    if (test.bits_per_byte != 0) {
      fields["test_bits_per_byte"] = test.bits_per_byte;
    }
  }
  if (summary.best) {
    fields["best"] = {{"step", summary.best->step},
                      {"loss", summary.best->loss},
                      {"accuracy", summary.best->accuracy},
                      {"checkpoint", summary.best->checkpoint}};
  }
  if (summary.samples > 0) fields["samples"] = summary.samples;
  if (summary.tokens > 0) fields["tokens"] = summary.tokens;
  Json memory = Json::object();
  for (const auto& [device, peak] : summary.device_memory) {
    memory[device] = peak;
  }
  Json measurements = Json::object();
  for (const auto& [name, value] : summary.measurements) {
    measurements[name] = value;
  }
  fields.update(
      {{"loss", summary.last_steps.loss()},
       {"samples_per_s", summary.samples_per_s},
       {"step_ms_median", summary.step_ms_median},
       {"skipped_steps", summary.skipped_steps},
       {"peak_rss_mib", summary.peak_rss_mib},
       {"device_memory", memory},
       {"host_waits", summary.host_waits ? Json(*summary.host_waits) : Json()},
       {"startup_ms", summary.startup_ms},
       {"saves", summary.saves},
       {"save_stall_ms", summary.save_stall_ms},
       {"flight_entries", summary.flight_entries},
       {"weights_sha256", summary.weights_sha256},
       {"measurements", measurements}});
  if (!summary.pipeline_times.empty()) {
    fields["pipeline_times"] = summary.pipeline_times;
  }
  if (!summary.ranks.slowest.empty()) {
    fields["rank_step_ms_median"] = summary.ranks.median_ms;
  }
  for (const RankReport& each : summary.ranks.slowest) {
    fields["slowest_ranks"][absl::StrCat(each.rank)] = each.step_ms;
  }
  return fields;
}

}  // namespace tandem
