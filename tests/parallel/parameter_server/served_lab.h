// For tests: a small job on parameter servers, as a job of the strategies'
// laboratory.

#ifndef TANDEM_TESTS_PARALLEL_PARAMETER_SERVER_SERVED_LAB_H_
#define TANDEM_TESTS_PARALLEL_PARAMETER_SERVER_SERVED_LAB_H_

#include <string>

#include "core/loss/loss.h"
#include "core/model/layer.h"
#include "parallel/parameter_server/parameter_server.h"
#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {

// Two linear layers with BatchNorm between them, and a seed.
LayerSpecs ServedSpecs(int seed);

// The batch of the worker with that number.
Batch BatchOfWorker(int step, int worker);

// So many workers, beside options.servers; worker w begins with other values
// than the others, which the first one's replace.
LabLayout ServedLayoutOf(int workers, const ParameterServerOptions& options,
                         const std::string& backend = "shm");
// `loss`: null for CrossEntropy.
LabJob ServedJob(const ParameterServerOptions& options, int steps,
                 const LossFunction& loss = nullptr);

// The same on as many replicas that average their gradients.
LabLayout ReplicatedLayoutOf(int workers);
LabJob ReplicatedJob(const UpdateOptions& options, int steps,
                     const LossFunction& loss = nullptr);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_PARAMETER_SERVER_SERVED_LAB_H_
