// All-gather, reduce-scatter and all-to-all: collectives over tensors of which
// each rank of a group has a part.
//
// They are started on a communicator, and what holds of its own collectives
// (core/comm/communicator.h) holds of them: their order, the thread that starts
// them, errors, timeouts, Abort and `check_collectives`. Tensors have one dtype
// and lie on one device. "Rank r's part" of a tensor is the r-th of as many
// equal parts of its memory as the group has ranks, whatever its shape.
//
//   // Parameters of which this rank keeps its own part between steps.
//   at::Tensor mine = all.narrow(0, group.rank() * n, n);
//   TANDEM_ASSIGN_OR_RETURN(PendingCollective gather,
//                           StartAllGather(group, all, mine));
//
// On shared memory nothing is copied on the way where the whole tensor lies in
// a group buffer (core/comm/group_buffer.h) and `mine` is this rank's part of
// it; else everything goes through slots, once in and once out.

#ifndef TANDEM_CORE_COMM_PARTITIONED_COLLECTIVES_H_
#define TANDEM_CORE_COMM_PARTITIONED_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"

namespace tandem {

// Every rank's part of `all` becomes that rank's `mine`
// (torch.distributed.all_gather_into_tensor). `all` has as many elements as all
// ranks' `mine` together. `mine` may be this rank's own part of `all`, which is
// then left as it is, but overlaps it in no other way. Any dtype.
absl::StatusOr<PendingCollective> StartAllGather(
    Communicator& group, const at::Tensor& all, const at::Tensor& mine,
    const CollectivePurpose& purpose = nullptr);

// `mine` becomes the sum over all ranks of this rank's part of their `all`
// (torch.distributed.reduce_scatter_tensor), each rank's multiplied by `factor`
// first, as StartAllReduceSum does; not for bool and complex numbers. `mine`
// may be this rank's own part of `all`, of which the other parts mean nothing
// afterwards; otherwise it overlaps `all` nowhere, and `all` stays as it is.
//
// Bits: by shm, gloo and shm over several hosts those of the all-reduce of the
// same tensors (which for several hosts depend on sizes and hosts), the same
// in every run. By NCCL the same in every run of as many ranks on the same
// links, as far as NCCL promises that of its sums; others than its all-reduce
// gives.
//
// Gloo, and shm over several hosts, all-reduce `all`, or a copy of it: its time
// and its bytes. They write `mine` when it is waited for.
absl::StatusOr<PendingCollective> StartReduceScatterSum(
    Communicator& group, const at::Tensor& all, const at::Tensor& mine,
    double factor = 1, const CollectivePurpose& purpose = nullptr);

// Rank r's part of `received` becomes this rank's part of the `sent` of rank r
// (torch.distributed.all_to_all_single without sizes). Both have as many
// elements, the same on all ranks and a multiple of their number, and do not
// overlap. Any dtype.
absl::StatusOr<PendingCollective> StartAllToAll(
    Communicator& group, const at::Tensor& received, const at::Tensor& sent,
    const CollectivePurpose& purpose = nullptr);

// How many rows (slices along the first dimension) go to, and come from, each
// rank: by rank, this one included, in the order in which they lie.
struct ExchangedRows {
  std::vector<int64_t> received;
  std::vector<int64_t> sent;
};

// The same in parts of any sizes (all_to_all_single with split sizes): rows of
// the same shape on all ranks. What a rank sends to another must be what that
// one expects. shm finds any difference; `check_collectives` finds it on every
// backend, before anything is started: InvalidArgument on every rank, after
// which the group goes on. Without it other backends move wrong bytes, or wait
// until the timeout. Ranks that have nothing to send or to receive take part.
absl::StatusOr<PendingCollective> StartAllToAllRows(
    Communicator& group, const at::Tensor& received, const at::Tensor& sent,
    const ExchangedRows& rows, const CollectivePurpose& purpose = nullptr);

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_PARTITIONED_COLLECTIVES_H_
