#include "core/autotune/kernel_choices.h"

#include <ATen/Version.h>
#include <glog/logging.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/device/host_resources.h"

namespace tandem {
namespace {

using Measuring = KernelChoices::Measuring;

constexpr int kRounds = 5;
// What a round takes at least, so that a clock's grain is of no consequence.
constexpr double kLeastRound = 1e-4;

double MeasureSeconds(const Kernel& kernel, int runs) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) kernel.run();
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count() / runs;
}

// The others' rounds lie between its own, so that what else the machine does
// concerns all of them.
std::vector<double> Time(absl::Span<const Kernel> kernels) {
  std::vector<int> runs;
  std::vector<double> best;
  for (const Kernel& kernel : kernels) {
    kernel.run();  // warms up
    best.push_back(MeasureSeconds(kernel, 1));
    runs.push_back(1 + static_cast<int>(kLeastRound / (best.back() + 1e-9)));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kernels.size(); ++i) {
      best[i] = std::min(best[i], MeasureSeconds(kernels[i], runs[i]));
    }
  }
  return best;
}

std::vector<double> MeasureTimes(const Measuring& measuring,
                                 absl::Span<const Kernel> kernels) {
  if (measuring.time == nullptr) return Time(kernels);
  std::vector<double> times;
  for (const Kernel& kernel : kernels) times.push_back(measuring.time(kernel));
  return times;
}

std::string Fastest(const Measuring& measuring, const std::string& key,
                    absl::Span<const Kernel> kernels, size_t fixed) {
  const std::vector<double> times = MeasureTimes(measuring, kernels);
  size_t best = fixed;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const double margin = best == fixed ? kClearlyFaster : 1;
    if (times[i] < margin * times[best]) best = i;
  }
  std::string report;
  for (size_t i = 0; i < kernels.size(); ++i) {
    absl::StrAppendFormat(&report, " %s %.1f us", kernels[i].name,
                          1e6 * times[i]);
  }
  VLOG(1) << key << ":" << report << "; " << kernels[best].name;
  return kernels[best].name;
}

// Other libraries and processors time otherwise.
std::string KeyHere(const std::string& key) {
  static const auto* const here = new std::string(
      absl::StrCat(ProcessorName(), " with ", at::get_cpu_capability(),
                   ", LibTorch ", TORCH_VERSION, ", "));
  return *here + key;
}

std::optional<size_t> KernelIndex(const std::string& name,
                                  absl::Span<const Kernel> kernels) {
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i].name == name) return i;
  }
  return std::nullopt;
}

size_t Measured(const Measuring& measuring, const std::string& key,
                absl::Span<const Kernel> kernels, size_t fixed) {
  const auto given = measuring.given.find(key);
  if (given != measuring.given.end()) {
    if (const auto place = KernelIndex(given->second, kernels)) return *place;
  }
  std::optional<std::string> decision;
  const auto decide = [&](const std::string& mine) {
    if (measuring.decide == nullptr) return mine;
    if (!decision.has_value()) {
      decision = measuring.decide(key, mine);
      if (!KernelIndex(*decision, kernels).has_value()) decision = mine;
    }
    return *decision;
  };
  const auto measure = [&] {
    if (decision.has_value()) return *decision;
    return decide(Fastest(measuring, key, kernels, fixed));
  };
  absl::StatusOr<std::string> kept =
      absl::FailedPreconditionError("no file keeps it");
  if (measuring.file != nullptr) {
    // What another job has written there meanwhile gives way to what this one
    // has decided, for its next run is to compute the same.
    kept = measuring.file->FindOr(
        key,
        [&](const std::string& name) {
          return KernelIndex(name, kernels).has_value() && decide(name) == name;
        },
        measure);
  }
  if (kept.ok()) return *KernelIndex(*kept, kernels);
  LOG_IF(WARNING, measuring.file != nullptr)
      << "a kernel is not measured: " << kept.status();
  // The job's other ranks may keep it.
  return measuring.decide == nullptr ? fixed : *KernelIndex(measure(), kernels);
}

}  // namespace

KernelChoices& KernelChoices::OfProcess() {
  static auto* const choices = new KernelChoices;
  return *choices;
}

void KernelChoices::Measure(Measuring measuring) {
  absl::MutexLock lock(&mutex_);
  measuring_ = std::make_shared<Measuring>(std::move(measuring));
  measures_ = true;
  ++generation_;
}

void KernelChoices::Fix() {
  absl::MutexLock lock(&mutex_);
  measuring_ = nullptr;
  measures_ = false;
  ++generation_;
}

size_t KernelChoices::Pick(const std::string& question,
                           absl::Span<const Kernel> kernels, size_t fixed) {
  std::shared_ptr<Measuring> measuring;
  {
    absl::MutexLock lock(&mutex_);
    measuring = measuring_;
  }
  if (measuring == nullptr) return fixed;
  return Measured(*measuring, KeyHere(question), kernels, fixed);
}

}  // namespace tandem
