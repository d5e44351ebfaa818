// Replicated tensors: a module's parameters and buffers, and those of its
// replicas on other devices, kept from one forward to the next.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_TENSORS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_TENSORS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/named_tensors.h"
#include "parallel/data_parallel/copy_units.h"
#include "parallel/data_parallel/gradient_watch.h"
#include "parallel/data_parallel/module_tensors.h"

namespace tandem {

// Replica 0 lies on the module's device and has its memory: what its forward
// writes to a buffer (BatchNorm's running statistics) is written to the
// module's. The others have memory of their own, which follows the module's
// values: a parameter's where it may have changed, a buffer's before each
// forward. What tells of a change is a tensor's version counter, which in-place
// operations count up, and its memory; and, unless they are said to count all
// writes, a gradient, of which an optimizer may have made use
// (gradient_watch.h).
//
// Replicas' tensors stay the same objects. Used by one thread, but for
// CopyParameters.
class ReplicatedTensors {
 public:
  // `replicas[r]` are the tensors of a clone for devices[r], wherever they lie
  // now, with whatever values. InvalidArgument, naming the tensor, where a
  // replica is not a clone of the module, and for sparse parameters; errors of
  // CheckOnDevice, and LibTorch's exceptions (out of memory).
  static absl::StatusOr<std::unique_ptr<ReplicatedTensors>> Create(
      const ModuleTensors& module, const std::vector<ModuleTensors>& replicas,
      const std::vector<c10::Device>& devices, bool counts_all_writes);

  // Has all be copied once more to every replica.
  void Distrust();

  // Before a forward of the first `count` replicas: buffers are copied, and,
  // where gradients are on, replicas' tensors become functions of those of the
  // module's that require one (replicate_backward.h). Follows the module's
  // tensors to other memory. Errors of CheckOnDevice, and LibTorch's
  // exceptions.
  absl::Status Begin(size_t count);

  // Then, for each of these replicas but 0, before it runs: copies parameters
  // that have changed. For several replicas at once, by a thread each. Throws
  // LibTorch's exceptions.
  void CopyParameters(size_t replica);

  // To replicas, since tensors were laid out last: for who measures.
  int64_t bytes_copied() const;

 private:
  struct Entry {
    std::string name;
    at::Tensor master;
    bool is_buffer = false;
    bool required_gradient = false;    // when it was laid out
    std::vector<at::Tensor> replicas;  // undefined: has another name before
  };

  ReplicatedTensors(std::vector<c10::Device> devices, bool counts_all_writes);

  absl::Status Add(const NamedTensors& master,
                   const std::vector<const NamedTensors*>& replicas,
                   bool are_buffers);
  absl::Status DropAliases();
  bool HasMoved(const Entry& entry) const;
  void ShareMemory(const Entry& entry) const;
  void LayOut();
  void CopyAhead(size_t count);
  bool MustCopy(const CopyUnit& unit, size_t replica) const;
  void Route(size_t count);

  const std::vector<c10::Device> devices_;
  ModuleTensors module_;
  std::vector<Entry> entries_;
  std::vector<CopyUnit> units_;
  bool is_routed_ = false;
  bool counts_all_writes_ = false;
  GradientWatch watch_;
  // By replica: what may be old, whatever the counters say. Parameters that
  // require a gradient; all.
  std::vector<char> suspect_;
  std::vector<char> distrusted_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_TENSORS_H_
