// Trained state: parameters, buffers and optimizer state, as each rank holds
// its part of them, as a stream of the whole, and as they are loaded.

#ifndef TANDEM_PARALLEL_STRATEGY_TRAINED_STATE_H_
#define TANDEM_PARALLEL_STRATEGY_TRAINED_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"

namespace tandem {

class Communicator;
class StoredTensors;
class TensorSink;
struct StatePart;

// Which tensors of a model are meant.
struct StateParts {
  bool parameters = true;
  bool buffers = true;
  bool optimizer = false;
};

// Tensors of a whole model.
struct WholeState {
  NamedTensors parameters;
  NamedTensors buffers;
  NamedTensors optimizer;
};

// The state of a strategy. Not thread-safe.
class TrainedState {
 public:
  virtual ~TrainedState() = default;

  // What this rank holds, by full name ("layer1.0.conv1.weight"). Tensors alias
  // the live ones.
  virtual NamedTensors Parameters() const = 0;
  virtual NamedTensors Buffers() const = 0;

  // Parameters that all replicas have alike, between two steps: not those that
  // each trains for itself (parameters_to_ignore, traits).
  virtual NamedTensors AlikeParameters() const { return Parameters(); }

  // By the full name of each trained parameter of this rank, the first of those
  // of a tied weight: which of the optimizers' groups it is in.
  virtual std::map<std::string, int64_t> OptimizerGroups() const { return {}; }

  // Parameters that hold, elsewhere on this rank, the values of another, with
  // which they share a weight: by name, the other's. Whoever sets values from
  // without sets them in both.
  virtual std::map<std::string, std::string> TiedCopies() const { return {}; }

  // Optimizer state by "PARAMETER.STATE" ("fc.weight.momentum_buffer"), with
  // PyTorch's state names; a parameter that has not been stepped has none. As
  // Optimizer::State: tensors alias the live ones until the next step, and what
  // replicas share (shard_optimizer) is left out: see GatherState.
  virtual NamedTensors OptimizerState() const = 0;

  // The whole model's tensors to `sink`, on rank 0, where a checkpoint is
  // written, under their names in a checkpoint (core/checkpoint/checkpoint.h).
  // On other ranks `sink` only tells the order, which must be the same on all.
  // No rank holds more than one tensor that it did not hold before; but the
  // first replica all of a shared optimizer's state (shard_optimizer), until
  // this returns. Collective.
  virtual absl::Status StreamState(const StateParts& parts,
                                   TensorSink& sink) = 0;

  // What this rank writes of a checkpoint's folder: everything, with the
  // optimizer's state, is some rank's part, and nothing is two ranks'. Of
  // replicas the first one has what they have alike, each its own of what they
  // share. Tensors alias the live ones until the next step. Not collective; but
  // devices are waited for.
  virtual absl::StatusOr<StatePart> PartToSave() = 0;
  // The ranks that have such parts, in a group, of which this is one; null:
  // others have. `world`: all ranks of the job.
  virtual Communicator* SavingGroup(Communicator* world) const { return world; }

  // All of it at once, on rank 0, for models that are small enough; what other
  // ranks get means nothing. Tensors alias the live ones where rank 0 has them.
  // Collective.
  absl::StatusOr<WholeState> GatherState();

  // Replaces values, given the whole model's: each tensor has a counterpart of
  // the same name, shape and dtype (among Parameters() and Buffers(), where a
  // rank holds all), and nothing is missing; else an error that names the first
  // that differs, and nothing is changed. Read are only the tensors that this
  // rank has, one after the other.
  virtual absl::Status LoadModelState(const StoredTensors& state) = 0;
  virtual absl::Status LoadOptimizerState(const StoredTensors& state) = 0;
  // What these two would say, and nothing changed.
  virtual absl::Status CheckModelState(const StoredTensors& state) const = 0;
  virtual absl::Status CheckOptimizerState(
      const StoredTensors& state) const = 0;

 protected:
  // This rank's, under their names in a checkpoint, with such state of the
  // optimizer. InvalidArgument as CheckpointTensors.
  absl::StatusOr<NamedTensors> OwnState(const StateParts& parts,
                                        NamedTensors optimizer) const;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_TRAINED_STATE_H_
