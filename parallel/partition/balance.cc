#include "parallel/partition/balance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <regex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/balance/cut.h"
#include "parallel/partition/part_costs.h"

namespace tandem {
namespace {

struct FoundCuts {
  Cuts cuts;
  // What the fullest devices lack, together; 0: all parts fit.
  int64_t missing_bytes = 0;
};

// Combinations of cuts: where there are more, not all are tried.
constexpr int64_t kMostTried = 20000;

struct Tried {
  int64_t missing_bytes = 0;
  double slowest = 0;
  double squares = 0;
  Cuts cuts;

  bool IsBetterThan(const Tried& other) const {
    return std::tie(missing_bytes, slowest, squares) <
           std::tie(other.missing_bytes, other.slowest, other.squares);
  }
};

// The search for cuts where a device has several parts.
class Search {
 public:
  Search(const PartCosts& costs, int64_t device_bytes)
      : costs_(costs),
        device_bytes_(device_bytes),
        layers_(static_cast<int64_t>(costs.layers())) {}

  Tried Try(const Cuts& cuts) const {
    Tried tried;
    tried.cuts = cuts;
    if (device_bytes_ > 0) {
      for (const int64_t bytes : costs_.DeviceBytes(cuts)) {
        tried.missing_bytes += std::max<int64_t>(bytes - device_bytes_, 0);
      }
    }
    const std::vector<double> times = costs_.DeviceTimes(cuts);
    tried.slowest = *std::max_element(times.begin(), times.end());
    for (const double time : costs_.PartTimes(cuts)) {
      tried.squares += time * time;
    }
    return tried;
  }

  Tried OfAll(size_t count) const {
    Cuts cuts;
    for (size_t i = 0; i < count; ++i) {
      cuts.push_back(static_cast<int64_t>(i) + 1);
    }
    Tried best = Try(cuts);
    while (Next(&cuts)) Take(cuts, &best);
    return best;
  }

  Tried From(const Cuts& start) const {
    Tried best = Try(start);
    while (MoveOne(&best) || MoveTwo(&best)) {
    }
    return best;
  }

 private:
  // The next combination, in alphabetic order.
  bool Next(Cuts* cuts) const {
    const auto count = static_cast<int64_t>(cuts->size());
    for (int64_t i = count - 1; i >= 0; --i) {
      int64_t& cut = (*cuts)[static_cast<size_t>(i)];
      if (cut + 1 > layers_ - (count - i)) continue;
      ++cut;
      for (auto j = static_cast<size_t>(i) + 1; j < cuts->size(); ++j) {
        (*cuts)[j] = (*cuts)[j - 1] + 1;
      }
      return true;
    }
    return false;
  }

  bool Take(const Cuts& cuts, Tried* best) const {
    Tried tried = Try(cuts);
    const bool is_better = tried.IsBetterThan(*best);
    if (is_better) *best = std::move(tried);
    return is_better;
  }

  // To any place between its neighbours.
  bool MoveOne(Tried* best) const {
    bool moved = false;
    for (size_t i = 0; i < best->cuts.size(); ++i) {
      const int64_t first = i == 0 ? 1 : best->cuts[i - 1] + 1;
      const int64_t end =
          i + 1 < best->cuts.size() ? best->cuts[i + 1] : layers_;
      for (int64_t cut = first; cut < end; ++cut) {
        Cuts cuts = best->cuts;
        cuts[i] = cut;
        moved = Take(cuts, best) || moved;
      }
    }
    return moved;
  }

  // A little, at the same time.
  bool MoveTwo(Tried* best) const {
    for (size_t i = 0; i < best->cuts.size(); ++i) {
      for (size_t j = i + 1; j < best->cuts.size(); ++j) {
        for (int by_i = -2; by_i <= 2; ++by_i) {
          for (int by_j = -2; by_j <= 2; ++by_j) {
            Cuts cuts = best->cuts;
            cuts[i] += by_i;
            cuts[j] += by_j;
            if (CheckCuts(cuts, layers_).ok() && Take(cuts, best)) return true;
          }
        }
      }
    }
    return false;
  }

  const PartCosts& costs_;
  const int64_t device_bytes_;
  const int64_t layers_;
};

// The number of ways for `count` cuts between so many layers, kMostTried + 1 at
// most.
int64_t Ways(int64_t layers, int64_t count) {
  int64_t ways = 1;
  for (int64_t i = 1; i <= count; ++i) {
    ways = ways * (layers - i) / i;
    if (ways > kMostTried * count) return kMostTried + 1;
  }
  return std::min(ways, kMostTried + 1);
}

// The cuts that lack the least memory, of those the ones whose slowest device
// is fastest, and of those the ones with the least sum of squares of the parts'
// times. All are tried where there are not too many (some 10,000); else the
// best that comes of `starts` (one at least, each with as many cuts) by moving
// one or two cuts for as long as that helps.
FoundCuts SearchCuts(const PartCosts& costs, int64_t device_bytes,
                     const std::vector<Cuts>& starts) {
  const Search search(costs, device_bytes);
  const size_t count = starts.front().size();
  Tried best;
  if (Ways(static_cast<int64_t>(costs.layers()), static_cast<int64_t>(count)) <=
      kMostTried) {
    best = search.OfAll(count);
  } else {
    best = search.From(starts.front());
    for (size_t i = 1; i < starts.size(); ++i) {
      Tried other = search.From(starts[i]);
      if (other.IsBetterThan(best)) best = std::move(other);
    }
  }
  return {best.cuts, best.missing_bytes};
}

constexpr double kNever = std::numeric_limits<double>::infinity();

absl::Status CheckDevices(int64_t parts, const BalanceOptions& options) {
  if (options.devices.empty()) return absl::OkStatus();
  std::vector<int> all;
  bool fits = true;
  for (const BalanceDevice& each : options.devices) {
    all.insert(all.end(), each.parts.begin(), each.parts.end());
    for (const auto& moment : each.moments) {
      fits = fits && moment.size() == each.parts.size();
    }
  }
  std::sort(all.begin(), all.end());
  fits = fits && static_cast<int64_t>(all.size()) == parts;
  for (size_t i = 0; fits && i < all.size(); ++i) {
    fits = all[i] == static_cast<int>(i);
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the devices must have each of ", parts,
                   " parts once, and know of all "
                   "of theirs what they keep, but they have parts ",
                   absl::StrJoin(all, ", ")));
}

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
        each.input_bytes >= 0 && each.evaluation_bytes >= 0 &&
        each.gathered_bytes >= 0 && each.gathered_numbers >= 0) {
      continue;
    }
    return absl::InvalidArgumentError("a layer's costs must not be negative");
  }
  return CheckDevices(parts, options);
}

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

Table Solve(const PartCosts& costs, size_t parts, int64_t device_bytes) {
  const size_t layers = costs.layers();
  Table best(parts + 1, std::vector<Best>(layers + 1));
  best[0][0].slowest = 0;
  for (size_t part = 1; part <= parts; ++part) {
    for (size_t end = part; end <= layers; ++end) {
      for (size_t begin = part - 1; begin < end; ++begin) {
        const Best& before = best[part - 1][begin];
        const bool fits = device_bytes == 0 ||
                          costs.Bytes(begin, end, part - 1) <= device_bytes;
        if (before.slowest == kNever || !fits) continue;
        const double time = costs.Time(begin, end, part - 1);
        const Best found = {std::max(before.slowest, time),
                            before.squares + time * time, begin};
        if (found < best[part][end]) best[part][end] = found;
      }
    }
  }
  return best;
}

// The best of all layers.
Cuts TableCuts(const Table& best) {
  Cuts cuts;
  size_t end = best.back().size() - 1;
  for (size_t part = best.size() - 1; part > 1; --part) {
    end = best[part][end].last_begin;
    cuts.insert(cuts.begin(), static_cast<int64_t>(end));
  }
  return cuts;
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
  const PartCosts costs(layers, options);
  const auto count = static_cast<size_t>(parts);
  if (options.devices.empty() || options.devices.size() == count) {
    const Table best = Solve(costs, count, options.device_bytes);
    if (best[count][layers.size()].slowest == kNever) {
      return DoesNotFit(best, options);
    }
    return TableCuts(best);
  }
  const Table by_part = Solve(costs, count, /*device_bytes=*/0);
  const FoundCuts found =
      SearchCuts(costs, options.device_bytes,
                 {TableCuts(by_part),
                  *UniformCuts(static_cast<int64_t>(layers.size()), parts)});
  if (found.missing_bytes == 0) return found.cuts;
  return absl::ResourceExhaustedError(absl::StrCat(
      "no cut fits into devices of ", options.device_bytes,
      " bytes: of the best one that was found ", found.missing_bytes,
      " bytes have no place; give more devices, smaller microbatches or more "
      "memory"));
}

std::vector<double> PartTimes(const std::vector<LayerCost>& layers,
                              const Cuts& cuts, const BalanceOptions& options) {
  return PartCosts(layers, options).PartTimes(cuts);
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

std::vector<LayerCost> LayerCosts(const ModelProfile& profile) {
  std::vector<LayerCost> costs;
  int64_t input_bytes = profile.input_bytes;
  for (const LayerProfile& layer : profile.layers) {
    const int64_t in_training =
        input_bytes + layer.output_bytes + layer.activation_bytes;
    const double evaluation =
        profile.evaluation_scale * static_cast<double>(in_training);
    costs.push_back(
        {layer.forward, layer.backward_input + layer.backward_weight,
         layer.state_bytes, layer.activation_bytes, layer.output_bytes,
         input_bytes, static_cast<int64_t>(std::ceil(evaluation)),
         layer.gathered_bytes, layer.gathered_numbers});
    input_bytes = layer.output_bytes;
  }
  return costs;
}

}  // namespace tandem
