#include "models/decoding/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/random/random.h"

namespace tandem {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

absl::StatusOr<std::vector<double>> Checked(const at::Tensor& logits) {
  const at::Tensor row = logits.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* data = row.const_data_ptr<double>();
  std::vector<double> values(data, data + row.numel());
  double most = kNone;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] < std::numeric_limits<double>::infinity())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the logit of token ", i, " is ", values[i],
          ": the model's weights have diverged, or its sums overflow"));
    }
    most = std::max(most, values[i]);
  }
  if (most > kNone) return values;
  return absl::InvalidArgumentError("no token has a logit above -inf");
}

void KeepTopK(int64_t count, std::vector<double>& logits) {
  const auto k = static_cast<size_t>(count);
  if (k == 0 || k >= logits.size()) return;
  std::vector<double> sorted = logits;
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(),
                   std::greater<>());
  for (double& logit : logits) {
    if (logit < sorted[k - 1]) logit = kNone;
  }
}

std::vector<double> Softmax(const std::vector<double>& logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> values;
  values.reserve(logits.size());
  for (const double logit : logits) values.push_back(std::exp(logit - most));
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  for (double& value : values) value /= sum;
  return values;
}

// Follows transformers: from the least likely on, tokens are left out as long
// as they are together 1 - top_p or less.
void KeepTopP(double top_p, std::vector<double>& probabilities) {
  if (top_p >= 1) return;
  std::vector<size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return probabilities[a] != probabilities[b]
               ? probabilities[a] < probabilities[b]
               : a > b;
  });
  order.pop_back();
  double left_out = 0;
  for (const size_t token : order) {
    left_out += probabilities[token];
    if (left_out > 1 - top_p) return;
    probabilities[token] = 0;
  }
}

void Normalize(std::vector<double>& probabilities) {
  const double sum =
      std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= sum;
}

// In [0, 1), of 53 bits.
double Uniform(uint64_t seed, int64_t position, int64_t sample) {
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  const auto high = [](uint64_t value) {
    return static_cast<uint32_t>(value >> 32);
  };
  const auto at = static_cast<uint64_t>(position);
  const auto text = static_cast<uint64_t>(sample);
  const PhiloxBlock block = Philox({low(at), high(at), low(text), high(text)},
                                   {low(seed), high(seed)});
  const uint64_t bits =
      (static_cast<uint64_t>(block[0]) << 32 | block[1]) >> 11;
  return static_cast<double>(bits) / static_cast<double>(uint64_t{1} << 53);
}

}  // namespace

absl::Status CheckSampling(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "temperature ", options.temperature, ": expected 0 (greedy) or more"));
  }
  if (options.top_k < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "top_k ", options.top_k, ": expected 0 (all tokens) or more"));
  }
  if (options.top_p > 0 && options.top_p <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("top_p ", options.top_p, ": expected more than 0, up to 1"));
}

absl::StatusOr<std::vector<double>> TokenProbabilities(
    const at::Tensor& logits, const SamplingOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckSampling(options));
  TANDEM_ASSIGN_OR_RETURN(std::vector<double> values, Checked(logits));
  if (options.temperature == 0) {
    const auto most = std::max_element(values.begin(), values.end());
    std::vector<double> only(values.size());
    only[static_cast<size_t>(most - values.begin())] = 1;
    return only;
  }
  const double most = *std::max_element(values.begin(), values.end());
  for (double& value : values) value = (value - most) / options.temperature;
  KeepTopK(options.top_k, values);
  std::vector<double> probabilities = Softmax(values);
  KeepTopP(options.top_p, probabilities);
  Normalize(probabilities);
  return probabilities;
}

absl::StatusOr<int64_t> SampleToken(const at::Tensor& logits,
                                    const SamplingOptions& options,
                                    int64_t position, int64_t sample) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<double> probabilities,
                          TokenProbabilities(logits, options));
  const double drawn = Uniform(options.seed, position, sample);
  double sum = 0;
  int64_t last = 0;  // of those that can be drawn: sums may round to below 1
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    sum += probabilities[i];
    last = static_cast<int64_t>(i);
    if (drawn < sum) break;
  }
  return last;
}

}  // namespace tandem
