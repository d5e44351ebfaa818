#include "tools/trainer/step_meter.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

double Ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : 0;
}

// The number of first steps that HostWaitMeter leaves out.
constexpr int64_t kFirstSteps = 3;

}  // namespace

void StepMeter::Add(const Score& score, int64_t samples, Duration time,
                    const Losses& added, const Losses& sums) {
  window_score_ += score;
  for (const auto& [name, mean] : added) {
    Sum& sum = window_losses_[name];
    sum.loss += mean * samples;
    sum.samples += samples;
  }
  for (const auto& [name, sum] : sums) window_sums_[name] += sum;
  ++window_steps_;
  window_samples_ += samples;
  window_s_ += time.count();
  total_samples_ += samples;
  total_s_ += time.count();
  step_ms_.push_back(static_cast<float>(time.count() * 1e3));
}

StepMeter::Losses StepMeter::auxiliary_losses() const {
  Losses means;
  for (const auto& [name, sum] : window_losses_) {
    means[name] = Ratio(sum.loss, sum.samples);
  }
  return means;
}

double StepMeter::samples_per_s() const {
  return Ratio(window_samples_, window_s_);
}

double StepMeter::step_ms() const {
  return Ratio(window_s_ * 1e3, window_steps_);
}

void StepMeter::Reset() {
  window_score_ = Score();
  window_losses_.clear();
  window_sums_.clear();
  window_steps_ = 0;
  window_samples_ = 0;
  window_s_ = 0;
}

double StepMeter::total_samples_per_s() const {
  return Ratio(total_samples_, total_s_);
}

double StepMeter::mean_step_ms() const {
  return Ratio(total_s_ * 1e3, static_cast<double>(step_ms_.size()));
}

double StepMeter::median_step_ms() const {
  if (step_ms_.empty()) return 0;
  std::vector<float> sorted = step_ms_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  if (sorted.size() % 2 == 1) return sorted[middle];
  return (sorted[middle - 1] + sorted[middle]) / 2.0;
}

void HostWaitMeter::BeginStep() { before_ = sim::CountedHostWaits(); }

void HostWaitMeter::EndStep() {
  if (++begun_ <= kFirstSteps) return;
  ++steps_;
  for (const auto& [what, count] : sim::HostWaitsSince(before_)) {
    all_[what] += count;
  }
}

std::map<std::string, double> HostWaitMeter::waits() const {
  std::map<std::string, double> waits;
  for (const auto& [what, count] : all_) {
    waits[what] = static_cast<double>(count) / static_cast<double>(steps_);
  }
  return waits;
}

}  // namespace tandem
