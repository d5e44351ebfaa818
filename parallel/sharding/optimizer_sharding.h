// Optimizer sharding (ZeRO stage 1): whether replicas share the optimizer's
// work and state, and the exchange of values that each rank has stepped and of
// state that each rank keeps a part of.

#ifndef TANDEM_PARALLEL_SHARDING_OPTIMIZER_SHARDING_H_
#define TANDEM_PARALLEL_SHARDING_OPTIMIZER_SHARDING_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/comm/communicator.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer_options.h"

namespace tandem {

class Communicator;

// "off", "auto", "optimizer", ...
const char* Word(Sharding sharding);
// What has that word; kOff for any other.
Sharding ShardingNamed(absl::string_view word);

// How many replicas are along the mesh's shard axis: `data_shard`; 0: all,
// where they share more than the optimizer.
int ShardDegree(Sharding sharding, int data_shard, int replicas);

// Whether one stage's replicas share.
struct ShardingChoice {
  bool shards = false;
  std::string reason;  // for a person: why, or why not
};

// From so many parameters on, with so many numbers of state for each, a step
// becomes faster: below, telling the others takes as long as updating all, or
// longer, depending on the processor (docs/layouts.md).
inline constexpr int64_t kLeastShardedParameters = 1000000;
inline constexpr int kLeastStateNumbers = 2;

// What an optimizer has to do for a stage.
struct OptimizerWork {
  int64_t parameters = 0;
  int state_numbers = 0;  // of a parameter, at most (MostStateNumbers)
};

// For the replicas of a stage; null: it has one. kAuto: where there is as much
// to do as that, and replicas share memory. `excluded_by`: what in the job
// cannot do with it, or empty; not with kOn. The same on all replicas.
ShardingChoice ChooseSharding(Sharding asked, const OptimizerWork& work,
                              const Communicator* replicas,
                              const std::string& excluded_by);

// This rank's share of a buffer where a group's ranks, which have the same
// buffers, share the optimizer: all of one whose gradients are not averaged
// over them (parameters_to_ignore).
OptimizerShare ShareIn(const Communicator& group, const FlatBuffer& buffer);

// After every rank has stepped its own share: all have all values of what they
// share, in place, bit for bit those of their owners. Fewest copies where
// values() lie in a group buffer (core/comm/group_buffer.h). Collective; errors
// are Communicator's, and name the step, counted from 1.
absl::Status GatherValues(const FlatBufferList& buffers, Communicator& group,
                          int64_t step);

// `mine` are this rank's elements of a state of `buffer`: on the group's first
// rank all of them, [buffer's size], in the host's memory; elsewhere undefined.
// They come in pieces of the largest parameter's size, so that no device holds
// more than one that is not its own. Collective; errors are Communicator's.
absl::StatusOr<at::Tensor> GatherOnFirst(const FlatBuffer& buffer,
                                         const at::Tensor& mine,
                                         Communicator& group);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_SHARDING_OPTIMIZER_SHARDING_H_
