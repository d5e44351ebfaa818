// PowerSGD: gradients sent as products of thin matrices.

#ifndef TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_H_
#define TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/tensors.h"
#include "parallel/comm_hooks/communication_hook.h"

namespace tandem {

// Names, meaning and defaults of PyTorch's PowerSGDState.
struct PowerSgdOptions {
  // Columns of the thin matrices: more approximate better and cost more.
  int64_t matrix_approximation_rank = 1;
  // Before this iteration gradients are averaged uncompressed: the beginning of
  // training takes compression badly. (PyTorch: start_powerSGD_iter, which must
  // be above 1 there. Here state goes by parameters' names and survives the
  // rebuilding of buckets, so that 0 will do.)
  int64_t start_power_sgd_iter = 1000;
  // A gradient [n, m] is compressed if that makes it smaller by more than this:
  // (n + m) * rank * min_compression_rate < n * m.
  double min_compression_rate = 2;
  // What compression lost is added to the next gradient. Takes memory of the
  // size of the compressed gradients.
  bool use_error_feedback = true;
  // Begin with the last step's Q and not with a random one.
  bool warm_start = true;
  double orthogonalization_epsilon = 0;  // see Orthogonalize
  uint64_t random_seed = 0;              // the same on every rank
};

// So far. Counts are elements of gradients.
struct CompressionStats {
  int64_t iter = 0;  // backwards, those before compression began included
  int64_t numel_before_compression = 0;
  int64_t numel_after_compression = 0;

  // 0 before anything was compressed.
  double compression_rate() const {
    return numel_after_compression == 0
               ? 0
               : static_cast<double>(numel_before_compression) /
                     static_cast<double>(numel_after_compression);
  }
};

class PowerSgdState;

// PowerSGD (Vogels, Karimireddy, Jaggi, arXiv:1905.13727), PyTorch's
// powerSGD_hook. The gradient M of a parameter, plus the error of the last
// step, is seen as a matrix: its outermost dimension by all others. P = MQ is
// summed over the ranks and orthogonalised, Q = M'P is averaged, and every rank
// takes PQ' for the gradient: exact when the ranks' sum has no greater rank
// than asked for. Parameters of one dimension, and others that would not become
// smaller enough, are averaged as they are. Three all-reduces a bucket: those
// as they are, all Ps, all Qs. The last comes at the end of backward.
//
// All ranks have the same bits afterwards if they run on the same kind of CPU
// with as many threads: each multiplies P and Q by itself.
//
// Where PyTorch has it otherwise: the error is kept for compressed gradients
// alone (for others it is the distance from the mean, which sums to zero); a
// column of P or Q that depends on others becomes zero, or random, where
// PyTorch has NaN; random Qs come from another generator. A gradient that is
// not finite shows as NaN on all ranks, and its parameter starts afresh in the
// next step (in PyTorch it stays NaN).
//
// A handle: copies share the state, which its hooks keep alive. Not
// thread-safe: no other call while backward runs.
class PowerSgd {
 public:
  // InvalidArgument, naming the option, for a rank below 1, a negative start or
  // epsilon, a compression rate that is not positive.
  static absl::StatusOr<PowerSgd> Create(const PowerSgdOptions& options);

  // For one reducer. Fp16CompressWrapper(Hook()) halves what is sent again.
  CommunicationHook Hook() const;

  CompressionStats Stats() const;

  // Copies of what the next step depends on: "power_sgd.iter" and two more
  // counts; "PARAMETER.q" ([columns, rank]) with warm_start, and
  // "PARAMETER.error" (of the parameter's shape) with use_error_feedback, for
  // each parameter that has been compressed. Errors are each rank's own: a job
  // that is to go on as if it had not stopped saves those of every rank.
  NamedTensors State() const;

  // Replaces the state. InvalidArgument, and nothing changed, for a missing
  // count, or a tensor whose name or dimensions do not belong here. Which
  // parameters there are only a backward tells: one whose q or error has
  // another shape fails then.
  absl::Status LoadState(const NamedTensors& state);

 private:
  explicit PowerSgd(std::shared_ptr<PowerSgdState> state);

  std::shared_ptr<PowerSgdState> state_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_COMM_HOOKS_POWER_SGD_H_
