#include "parallel/balance.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <regex>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

absl::Status CheckCosts(const std::vector<LayerCost>& layers, int64_t parts,
                        const BalanceOptions& options) {
  const auto count = static_cast<int64_t>(layers.size());
  if (parts < 1 || parts > count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a model of ", count, " layers cannot be cut into ", parts, " parts"));
  }
  for (const LayerCost& each : layers) {
    if (each.forward >= 0 && each.backward >= 0 && each.state_bytes >= 0 &&
        each.activation_bytes >= 0 && each.output_bytes >= 0 &&
        each.input_bytes >= 0) {
      continue;
    }
    return absl::InvalidArgumentError("a layer's costs must not be negative");
  }
  const auto alive = static_cast<int64_t>(options.activations_alive.size());
  if (alive == 0 || alive == parts) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "activations_alive has ", alive, " entries for ", parts, " parts"));
}

// What any part costs, from sums over the layers before each.
class PartCosts {
 public:
  PartCosts(const std::vector<LayerCost>& layers, const BalanceOptions& options)
      : layers_(layers), options_(options), sums_(1) {
    for (const LayerCost& each : layers) {
      Sum sum = sums_.back();
      sum.time += each.forward + each.backward;
      sum.state += each.state_bytes;
      sum.activations += each.activation_bytes;
      sums_.push_back(sum);
    }
  }

  // Of layers begin .. end - 1.
  double Time(size_t begin, size_t end) const {
    double time = sums_[end].time - sums_[begin].time;
    if (begin > 0) time += Message(begin - 1);
    if (end < layers_.size()) time += Message(end - 1);
    return time;
  }

  bool Fits(size_t begin, size_t end, size_t part) const {
    if (options_.device_bytes == 0) return true;
    const int64_t alive = options_.activations_alive.empty()
                              ? 1
                              : options_.activations_alive[part];
    return sums_[end].state - sums_[begin].state +
               alive * (layers_[begin].input_bytes + sums_[end].activations -
                        sums_[begin].activations) <=
           options_.device_bytes;
  }

 private:
  struct Sum {
    double time = 0;
    int64_t state = 0;
    int64_t activations = 0;
  };

  // Behind the layer, one way.
  double Message(size_t layer) const {
    return options_.seconds_per_message +
           options_.seconds_per_byte *
               static_cast<double>(layers_[layer].output_bytes);
  }

  const std::vector<LayerCost>& layers_;
  const BalanceOptions& options_;
  std::vector<Sum> sums_;  // of the layers before
};

// The best way to cut the layers before some place into some number of parts.
struct Best {
  double slowest = kNever;
  double squares = 0;
  size_t last_begin = 0;

  bool operator<(const Best& other) const {
    return std::make_pair(slowest, squares) <
           std::make_pair(other.slowest, other.squares);
  }
};

using Table = std::vector<std::vector<Best>>;  // [parts][layers]

Table Solve(const PartCosts& costs, size_t layers, size_t parts) {
  Table best(parts + 1, std::vector<Best>(layers + 1));
  best[0][0].slowest = 0;
  for (size_t part = 1; part <= parts; ++part) {
    for (size_t end = part; end <= layers; ++end) {
      for (size_t begin = part - 1; begin < end; ++begin) {
        const Best& before = best[part - 1][begin];
        if (before.slowest == kNever || !costs.Fits(begin, end, part - 1)) {
          continue;
        }
        const double time = costs.Time(begin, end);
        const Best found = {std::max(before.slowest, time),
                            before.squares + time * time, begin};
        if (found < best[part][end]) best[part][end] = found;
      }
    }
  }
  return best;
}

absl::Status DoesNotFit(const Table& best, const BalanceOptions& options) {
  size_t reached = 0;
  for (const auto& row : best) {
    for (size_t end = 0; end < row.size(); ++end) {
      if (row[end].slowest != kNever) reached = std::max(reached, end);
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no cut fits into devices of ", options.device_bytes,
                   " bytes: layer ", reached,
                   " cannot be placed behind those before it; give more "
                   "devices, smaller microbatches or more memory"));
}

}  // namespace

absl::StatusOr<Cuts> CutsByTime(const std::vector<LayerCost>& layers,
                                int64_t parts, const BalanceOptions& options) {
  const absl::Status checked = CheckCosts(layers, parts, options);
  if (!checked.ok()) return checked;
  const Table best = Solve(PartCosts(layers, options), layers.size(),
                           static_cast<size_t>(parts));
  if (best[parts][layers.size()].slowest == kNever) {
    return DoesNotFit(best, options);
  }
  Cuts cuts;
  size_t end = layers.size();
  for (auto part = static_cast<size_t>(parts); part > 1; --part) {
    end = best[part][end].last_begin;
    cuts.insert(cuts.begin(), static_cast<int64_t>(end));
  }
  return cuts;
}

std::vector<double> PartTimes(const std::vector<LayerCost>& layers,
                              const Cuts& cuts, const BalanceOptions& options) {
  const PartCosts costs(layers, options);
  std::vector<double> times;
  for (const LayerRange& part :
       PartsOf(cuts, static_cast<int64_t>(layers.size()))) {
    times.push_back(costs.Time(part.begin, part.end));
  }
  return times;
}

absl::StatusOr<Cuts> CutsByType(const std::vector<std::string>& types,
                                const std::string& pattern, int64_t parts) {
  std::vector<int64_t> matches;
  try {
    const std::regex expression(pattern);
    for (const std::string& type : types) {
      matches.push_back(std::regex_search(type, expression) ? 1 : 0);
    }
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "type:", pattern, " is no regular expression: ", error.what()));
  }
  const int64_t found = std::count(matches.begin(), matches.end(), 1);
  if (found < parts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "type:", pattern, " matches ", found, " layers: too few for ", parts,
        " parts; types are ",
        absl::StrJoin(std::set<std::string>(types.begin(), types.end()),
                      ", ")));
  }
  return CutsByParameters(matches, parts);
}

}  // namespace tandem
