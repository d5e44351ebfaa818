#include "parallel/balance/cut.h"

#include <glog/logging.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/edit_distance.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

std::string Count(int64_t n, absl::string_view what) {
  return absl::StrCat(n, " ", what, n == 1 ? "" : "s");
}

absl::Status CheckParts(int64_t layers, int64_t parts) {
  if (parts < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model has at least 1 part, but ", parts,
                     " were asked "
                     "for"));
  }
  if (parts <= layers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      Count(parts, "part"), " need as many layers, but the model has ", layers,
      "; use fewer devices, or a model of more layers"));
}

absl::Status UnknownLayer(absl::string_view given,
                          const std::vector<std::string>& layers) {
  const std::string nearest = NearestName(given, layers);
  return absl::InvalidArgumentError(absl::StrCat(
      "the model has no layer \"", given, "\"",
      nearest.empty() ? "" : absl::StrCat(" (did you mean ", nearest, "?)"),
      "; it has ", Count(static_cast<int64_t>(layers.size()), "layer"), ", ",
      layers.front(), " (0) to ", layers.back(), " (", layers.size() - 1, ")"));
}

// The index of a layer that is given by name or by index.
absl::StatusOr<int64_t> Find(absl::string_view given,
                             const std::vector<std::string>& layers) {
  const auto found = std::find(layers.begin(), layers.end(), given);
  if (found == layers.end()) {
    int64_t index = 0;
    if (absl::SimpleAtoi(given, &index) && index >= 0 &&
        index < static_cast<int64_t>(layers.size())) {
      return index;
    }
    return UnknownLayer(given, layers);
  }
  if (std::find(found + 1, layers.end(), given) != layers.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("several layers are named ", given,
                     "; name the one that is meant by its index"));
  }
  return found - layers.begin();
}

// Whether a part can begin at `cut` when the one before began at `before`.
absl::Status CheckOrder(int64_t before, int64_t cut, absl::string_view given) {
  if (cut > before) return absl::OkStatus();
  if (cut < before) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", given, " (", cut, ") comes before layer ", before,
        ", where a part begins already; name the layers "
        "in the order of the model"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a part begins at layer ", given, " (", cut, ") already, so ",
      "the part in front of it would have no layer"));
}

// How many layers from `begin` on fit into a part of `limit` parameters, when
// `end` - `begin` are to be had.
int64_t Fill(const std::vector<int64_t>& sizes, int64_t begin, int64_t end,
             int64_t limit) {
  int64_t sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    sum += sizes[i];
    if (sum > limit) return i - begin;
  }
  return end - begin;
}

// Whether parts of at most `limit` parameters do. Requires limit >= every size.
bool Fits(const std::vector<int64_t>& sizes, int64_t parts, int64_t limit) {
  const auto layers = static_cast<int64_t>(sizes.size());
  int64_t begin = 0;
  for (int64_t part = 0; part < parts; ++part) {
    begin += Fill(sizes, begin, layers, limit);
  }
  return begin == layers;
}

// The least limit that fits.
int64_t LeastLimit(const std::vector<int64_t>& sizes, int64_t parts) {
  int64_t low = *std::max_element(sizes.begin(), sizes.end());
  int64_t high = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (Fits(sizes, parts, middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

absl::StatusOr<Cuts> ParseCuts(absl::string_view flag,
                               const std::vector<std::string>& layers,
                               int64_t parts) {
  TANDEM_RETURN_IF_ERROR(
      CheckParts(static_cast<int64_t>(layers.size()), parts));
  Cuts cuts;
  int64_t before = 0;
  for (absl::string_view given : absl::StrSplit(flag, ',')) {
    given = absl::StripAsciiWhitespace(given);
    if (flag.empty()) break;
    if (given.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cuts at '", flag, "': a layer's name or index is missing"));
    }
    TANDEM_ASSIGN_OR_RETURN(const int64_t cut, Find(given, layers));
    TANDEM_RETURN_IF_ERROR(CheckOrder(before, cut, given));
    cuts.push_back(before = cut);
  }
  if (static_cast<int64_t>(cuts.size()) == parts - 1) return cuts;
  return absl::InvalidArgumentError(
      absl::StrCat("cuts at '", flag, "': this names ",
                   Count(static_cast<int64_t>(cuts.size()), "layer"), ", but ",
                   Count(parts, "part"), " have ", Count(parts - 1, "cut"),
                   ": name the first layer of each part but the first"));
}

absl::StatusOr<Cuts> UniformCuts(int64_t layers, int64_t parts) {
  TANDEM_RETURN_IF_ERROR(CheckParts(layers, parts));
  Cuts cuts;
  for (int64_t part = 1; part < parts; ++part) {
    cuts.push_back(part * (layers / parts) + std::min(part, layers % parts));
  }
  return cuts;
}

absl::StatusOr<Cuts> CutsByParameters(const std::vector<int64_t>& sizes,
                                      int64_t parts) {
  const auto layers = static_cast<int64_t>(sizes.size());
  TANDEM_RETURN_IF_ERROR(CheckParts(layers, parts));
  for (int64_t size : sizes) CHECK_GE(size, 0);
  const int64_t limit = LeastLimit(sizes, parts);
  Cuts cuts;
  int64_t begin = 0;
  for (int64_t part = 1; part < parts; ++part) {
    // The parts behind this one need a layer each.
    begin += Fill(sizes, begin, layers - (parts - part), limit);
    cuts.push_back(begin);
  }
  return cuts;
}

absl::Status CheckCuts(const Cuts& cuts, int64_t layers) {
  TANDEM_RETURN_IF_ERROR(
      CheckParts(layers, static_cast<int64_t>(cuts.size()) + 1));
  int64_t before = 0;
  for (int64_t cut : cuts) {
    if (cut <= before || cut >= layers) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a cut in front of layer ", cut, " of ", layers, " leaves a part ",
          "without a layer; cuts rise, from 1 to ", layers - 1));
    }
    before = cut;
  }
  return absl::OkStatus();
}

std::vector<LayerRange> LayerRanges(const Cuts& cuts, int64_t layers) {
  std::vector<LayerRange> parts;
  int64_t begin = 0;
  for (int64_t cut : cuts) {
    parts.push_back({begin, cut});
    begin = cut;
  }
  parts.push_back({begin, layers});
  return parts;
}

}  // namespace tandem
