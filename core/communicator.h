// Some ranks that talk to each other: a c10d process group, with errors as
// Status.

#ifndef TANDEM_CORE_COMMUNICATOR_H_
#define TANDEM_CORE_COMMUNICATOR_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace tandem {

struct CommunicatorOptions {
  // How long any collective waits for the other ranks (PyTorch's default).
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // Which backend serves CPU tensors: "gloo".
  std::string backend = "gloo";
  // The network interface or local address that Gloo binds; empty: loopback
  // when every rank is on this host, else the one that reaches the master.
  std::string interface;
};

// A group of ranks. Every collective must be called by all of them in the same
// order; it blocks until it is done and returns
//   DeadlineExceeded when others did not come within the timeout,
//   Unavailable when a connection to another rank broke,
// with a message that names the operation, this rank and the group. A group of
// one rank answers at once and opens no connection. Tensors are dense,
// contiguous, of the same shape and dtype on every rank.
//
// Not thread-safe: one thread at a time issues collectives.
class Communicator {
 public:
  // Connects rank `rank` of `size` through `store`. `name` tells groups apart
  // on one store and in messages ("world", "data of stage 1").
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(
      c10::intrusive_ptr<c10d::Store> store, int rank, int size,
      const std::string& name, const CommunicatorOptions& options);

  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // In place: `tensor` becomes the sum over all ranks.
  absl::Status AllReduceSum(at::Tensor tensor);
  // In place: `tensor` becomes that of rank `root`.
  absl::Status Broadcast(at::Tensor tensor, int root);
  // Every rank's tensor, by rank.
  absl::StatusOr<std::vector<at::Tensor>> AllGather(const at::Tensor& tensor);
  // Every rank's string (of any length), by rank.
  absl::StatusOr<std::vector<std::string>> AllGatherString(
      const std::string& mine);
  absl::Status Barrier();

  // A group of some of these ranks (this one included), in the given order.
  // Only they need to call this; they must give the same list and name.
  absl::StatusOr<std::unique_ptr<Communicator>> Subgroup(
      absl::Span<const int> ranks, const std::string& name);

  // For what this class does not offer. Null when size() is 1.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const {
    return process_group_;
  }

 private:
  Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
               std::string name, CommunicatorOptions options);

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::string name_;
  CommunicatorOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_COMMUNICATOR_H_
