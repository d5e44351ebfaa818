// Parameter servers: asynchronous training, in which workers push gradients to
// the owners of the parameters and pull new values, without waiting for each
// other.

#ifndef TANDEM_PARALLEL_PARAMETER_SERVER_PARAMETER_SERVER_H_
#define TANDEM_PARALLEL_PARAMETER_SERVER_PARAMETER_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/optim/update_options.h"
#include "parallel/strategy/strategy.h"

namespace tandem {

class Communicator;

// How parameters are updated is said by the base; servers do it.
struct ParameterServerOptions : UpdateOptions {
  // The first ranks of the job; the others are workers. A job lives while its
  // servers do, so that they are the ranks that speak for it, and write files.
  int servers = 1;
  // How many steps a worker may be ahead of the slowest; 0: synchronous; -1: no
  // bound (WorkerProgress).
  int64_t max_staleness = 0;
};

// InvalidArgument, naming the option, unless at least one of `ranks` is a
// server and one a worker, max_staleness >= -1, and clip_norm is 0 or there are
// one server and no staleness: else nobody has all gradients of a step. Nor
// does anybody say that all skip one: grad_scaler is refused, of replicas, too.
// Nor does a server own whole matrices: Muon is refused.
absl::Status CheckParameterServerOptions(const ParameterServerOptions& options,
                                         int ranks);

// What a worker trains: a strategy of this rank alone, whose own optimizer is
// never asked (SGD without momentum keeps no state).
using MakeReplica =
    std::function<absl::StatusOr<std::unique_ptr<Strategy>>(int worker)>;

// Each server owns a contiguous slice of the parameters, laid out side by side,
// with their optimizers' state. A worker's TrainStep computes gradients from
// the values that it has, pushes each server its part, and takes new values.
//
// max_staleness 0: a step's gradients are averaged over the workers, in their
// order, and applied once: with one server the bits of MeshStrategy's replicas
// on the "shm" backend, and of one device where there is one worker. Otherwise
// each push is applied as it comes, at the learning rate of the worker's step
// divided by the number of living workers: a round of pushes is then one
// synchronous step, to first order, whatever the bound.
//
// A loss function with a weight (LossFunction): with max_staleness 0 workers
// tell each other before backward what their targets weigh, so that gradients
// are those of the mean over all that count, as replicas'. Otherwise each push
// is the mean over its own.
//
// A worker may skip a step that others do (SkipUpdate): a mean is then over
// those that did not, at the first one's learning rate, and a step that all
// skip changes nothing.
//
// A worker that dies, or says nothing for twice the group's timeout, is left
// out from then on, which servers log; its ranks' fate is not the job's. A
// server that dies ends every worker's step with Unavailable, naming it.
//
// A Strategy in which workers' scores are those of their own batch; a server's
// TrainStep is over when every living worker has done that step, and gives the
// score of all of them. Synchronise waits for all living workers and gives them
// the servers' values, and the first one's buffers. Servers take no batches,
// evaluate nothing, hold no whole tensor (Parameters() is empty); rank 0 gets
// the state that is streamed. AuxiliaryLosses and NamedSums are those of the
// scores: a worker's own, and on a server all workers'.
//
// At the start all workers take the first one's values. Tensors are compared
// across workers: InvalidArgument, on every rank, if they differ. `world` must
// outlive the strategy. Collective over all ranks.
//
// Fault points: "push:SERVER" on a worker, between the two messages of a push;
// "before_optimizer" on a server.
absl::StatusOr<std::unique_ptr<Strategy>> MakeParameterServer(
    const MakeReplica& make_replica, const ParameterServerOptions& options,
    Communicator& world);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PARAMETER_SERVER_PARAMETER_SERVER_H_
