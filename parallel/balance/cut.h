// Cuts: where a list of layers is cut into parts, one a device.
//
// Pure functions of names and counts. InvalidArgument when there are fewer
// layers than parts, or no part at all: every part has a layer.

#ifndef TANDEM_PARALLEL_BALANCE_CUT_H_
#define TANDEM_PARALLEL_BALANCE_CUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// For each part but the first, the index of its first layer. They rise, and lie
// between 1 and the number of layers - 1.
using Cuts = std::vector<int64_t>;

// The layers begin .. end - 1.
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The value of --balance=LAYER,...: each LAYER, by name or by index from 0, is
// the first of a part. A name goes before an index that reads the same.
// InvalidArgument, with what is wrong: a layer that there is not (with the name
// that comes nearest), a name that several layers have, layers out of order, a
// part without a layer, another number of cuts than parts - 1.
absl::StatusOr<Cuts> ParseCuts(absl::string_view flag,
                               const std::vector<std::string>& layers,
                               int64_t parts);

// Parts whose numbers of layers differ by one at most, the greater first.
absl::StatusOr<Cuts> UniformCuts(int64_t layers, int64_t parts);

// Parts of which the largest has as few parameters as can be. `sizes` are the
// layers' numbers of parameter elements, not negative. Among equals, the first
// part takes as many layers as it can, then the second, ...: layers without
// parameters stay with the layer before them.
absl::StatusOr<Cuts> CutsByParameters(const std::vector<int64_t>& sizes,
                                      int64_t parts);

// Whether these are cuts of so many layers.
absl::Status CheckCuts(const Cuts& cuts, int64_t layers);

// The parts that `cuts` make; requires CheckCuts.
std::vector<LayerRange> LayerRanges(const Cuts& cuts, int64_t layers);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_BALANCE_CUT_H_
