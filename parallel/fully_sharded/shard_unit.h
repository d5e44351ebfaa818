// Shard unit: parameters of a layer, or of some, that are gathered and freed
// together (the group of parameters of torch.distributed.fsdp.fully_shard).

#ifndef TANDEM_PARALLEL_FULLY_SHARDED_SHARD_UNIT_H_
#define TANDEM_PARALLEL_FULLY_SHARDED_SHARD_UNIT_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "parallel/optim/flat_buffer.h"

namespace tandem {

// The ranks that have shares of a unit.
struct ShardGroups {
  // The ranks that share it: for its values, and for its gradients.
  Communicator* gathers = nullptr;
  Communicator* reduces = nullptr;
  // Ranks that have the same share of it as this one (HSDP); null: no others.
  Communicator* copies = nullptr;
  // What gradients, summed over all of them, are divided by.
  int divisor = 1;
};

// This rank keeps its ShareSpan alone of what is sharded from then on.
absl::Status ShardBuffer(const ShardGroups& groups, bool shards_values,
                         bool shards_gradients, FlatBuffer& buffer);

// Not thread-safe. Collective calls are made by all ranks of the groups in the
// same order; errors are Communicator's, and name the unit.
class ShardUnit {
 public:
  // The buffers of its parameters, sharded before (ShardBuffer), must outlive
  // it, as must the groups. Those whose traits say so are gathered for layers
  // as copies of that dtype, if it is set.
  ShardUnit(std::string name, std::vector<FlatBuffer*> buffers,
            const ShardGroups& groups, bool shards_values,
            std::optional<at::ScalarType> param_dtype);
  ShardUnit(const ShardUnit&) = delete;
  ShardUnit& operator=(const ShardUnit&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<FlatBuffer*>& buffers() const { return buffers_; }

  // Begins to gather what layers compute with, unless it is there or on its
  // way; and waits for it. Collective, the first.
  absl::Status StartUnshard();
  absl::Status Unshard();
  // The values themselves, of all parameters. Collective.
  absl::Status UnshardValues();
  // Frees what is not this rank's. Nothing to do where values are not sharded,
  // or not there.
  absl::Status Reshard();

  // Memory for all values, with anything in it, and this rank's share taken
  // from it: in between somebody writes all of them anew. Not collective.
  absl::Status BeginReplacing();
  absl::Status EndReplacing();

  // Begins to average what backward has put in place, each rank's share, and
  // frees the rest when that has come; adds it to what the share has, with
  // `adds`. Parameters without a gradient count as zeros. Collective.
  absl::Status StartReduce(bool adds);
  absl::Status FinishReduce();
  bool is_reducing() const { return !reductions_.empty(); }

 private:
  struct Reduction {
    FlatBuffer* buffer;
    bool adds;
    std::vector<PendingCollective> parts;
  };

  absl::Status StartGather(FlatBuffer& buffer);
  absl::Status StartGatherCopies(FlatBuffer& buffer);
  absl::Status Gather(FlatBuffer& buffer, const at::Tensor& whole,
                      const at::Tensor& mine);
  bool GathersCopies(const FlatBuffer& buffer) const;
  absl::StatusOr<Reduction> StartReduce(FlatBuffer& buffer, bool adds);

  const std::string name_;
  // What collectives are for, in errors and in the flight record.
  const char* const parameters_;
  const char* const gradients_;
  const std::vector<FlatBuffer*> buffers_;
  const ShardGroups groups_;
  const bool shards_values_;
  const std::optional<at::ScalarType> param_dtype_;
  bool is_here_ = false;
  std::vector<PendingCollective> gathering_;
  std::vector<Reduction> reductions_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_FULLY_SHARDED_SHARD_UNIT_H_
