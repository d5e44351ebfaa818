// What all contenders start from: one file with initial weights and batches, so
// that they train the same.

#ifndef TANDEM_TOOLS_BENCH_RANK_INPUTS_H_
#define TANDEM_TOOLS_BENCH_RANK_INPUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "tools/bench/case/workload.h"

namespace tandem {

// Steps take them in turn.
constexpr int kBatches = 4;

// Seed of initial values and of random batches.
constexpr uint64_t kInputsSeed = 0;

absl::StatusOr<LayerSpecs> MakeSpecs(const Workload& workload);

// Random values, which depend on the workload and `name`.
Batch MakeBatch(const Workload& workload, const std::string& name);

// Writes a safetensors file: "state.NAME" for each parameter and buffer,
// "batch.I.inputs" and ".targets" for each batch.
absl::Status WriteInputsFile(const Workload& workload, const std::string& path);

struct Inputs {
  Workload workload;
  NamedTensors state;
  std::vector<Batch> batches;  // a replica's part of each
};

// The part of one of `replicas`, which take even ones.
absl::StatusOr<Inputs> ReadInputsFile(const Workload& workload,
                                      const std::string& path, int replica,
                                      int replicas);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_RANK_INPUTS_H_
