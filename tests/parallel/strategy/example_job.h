// For tests: a small model, its loss and its batches, from seeds.

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_EXAMPLE_JOB_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_EXAMPLE_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "core/comm/communicator.h"
#include "core/model/batch.h"
#include "core/model/layer.h"
#include "parallel/strategy/replicated.h"
#include "parallel/strategy/strategy.h"

namespace tandem {

constexpr int64_t kInputs = 6;
constexpr int64_t kHidden = 7;
constexpr int64_t kClasses = 5;

// Layers lie on the calling rank's TestDevice(). Values are functions of the
// seed.
Layer SeededLinear(const std::string& name, int64_t in, int64_t out,
                   uint64_t seed);
Layer BatchNormLayer(const std::string& name, int64_t features);
// Adds a linear branch where `used` says so: elsewhere its parameters are
// unused.
Layer BranchLayer(const std::string& name, int64_t features, uint64_t seed,
                  std::function<bool()> used);

// fc1 [kHidden, kInputs], tanh, fc2 [kClasses, kHidden].
LayerList PlainModel(uint64_t seed);

// The global batch of a step: inputs [size, kInputs], targets [size].
Batch GlobalBatch(int step, int64_t size);
// This rank's equal share of it.
Batch Share(const Batch& batch, const Communicator& world);

// This rank's strategy, on its TestDevice().
absl::StatusOr<std::unique_ptr<Strategy>> NewReplicated(
    LayerList layers, ReplicatedOptions options, Communicator& world);

// A digest of parameters, buffers and optimizer state.
std::string Fingerprint(const Strategy& strategy);

// Detached copies, on the CPU.
NamedTensors DetachedCopies(const NamedTensors& tensors);

// The tensor of that name; undefined, and the test fails, when there is none.
at::Tensor Find(const NamedTensors& tensors, const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_EXAMPLE_JOB_H_
