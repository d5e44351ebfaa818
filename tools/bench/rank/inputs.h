// What both sides of a comparison start from: one file with initial weights and
// every rank's batches, so that they train the same.

#ifndef TANDEM_TOOLS_BENCH_BENCH_INPUTS_H_
#define TANDEM_TOOLS_BENCH_BENCH_INPUTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "tools/bench/bench_case.h"

namespace tandem {

// Of each rank. Steps take them in turn.
constexpr int kBatchesPerRank = 4;

// The case's model, and its layers with initial values.
absl::StatusOr<LayerSpecs> MakeCaseSpecs(const BenchCase& bench);
absl::StatusOr<LayerList> MakeCaseLayers(const BenchCase& bench);

// Writes a safetensors file: "state.NAME" for each parameter and buffer,
// "batch.RANK.I.inputs" and ".targets" for each batch: random values.
absl::Status WriteBenchInputs(const BenchCase& bench, int ranks,
                              const std::string& path);

struct BenchInputs {
  NamedTensors state;
  std::vector<Batch> batches;  // of one rank
};

absl::StatusOr<BenchInputs> ReadBenchInputs(const std::string& path, int rank);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_BENCH_INPUTS_H_
