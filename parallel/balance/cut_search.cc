#include "parallel/balance/cut_search.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace tandem {
namespace {

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
    size_t number = 0;
    for (const LayerRange& part : PartsOf(cuts, layers_)) {
      const double time = costs_.Time(static_cast<size_t>(part.begin),
                                      static_cast<size_t>(part.end), number++);
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

// Of `count` cuts between so many layers, kMostTried + 1 at most.
int64_t Ways(int64_t layers, int64_t count) {
  int64_t ways = 1;
  for (int64_t i = 1; i <= count; ++i) {
    ways = ways * (layers - i) / i;
    if (ways > kMostTried * count) return kMostTried + 1;
  }
  return std::min(ways, kMostTried + 1);
}

}  // namespace

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

}  // namespace tandem
