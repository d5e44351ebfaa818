// Copy units: which of a module's tensors are copied to its replicas together.

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_COPY_UNITS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_COPY_UNITS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

// A tensor of a module, and its replicas'. Replica 0's, and undefined ones (of
// a tensor that came before under another name), are left alone.
struct ReplicatedTensor {
  at::Tensor master;
  std::vector<at::Tensor> replicas;
  // Copied whether its version counter has moved or not: kernels that write to
  // a buffer need not move it.
  bool always = false;
};

// Some of them, whose values go to a replica in one copy. The replicas' tensors
// have their memory in blocks, one a unit and replica.
//
// Used by one thread, but for CopyTo.
class CopyUnit {
 public:
  enum class Kind {
    kSpan,    // side by side in one memory, which is copied as a whole
    kPacked,  // put side by side first
    kAlone,   // one tensor of whatever layout
  };

  // `members` have one dtype, are to be copied `always` or not all of them, and
  // require a gradient or not all of them. Gives replicas 1, 2, ... memory on
  // devices[1], devices[2], ...
  CopyUnit(Kind kind, std::vector<ReplicatedTensor> members,
           const std::vector<c10::Device>& devices);

  // Whether a forward may write to it: then it is copied before any replica
  // runs.
  bool is_state() const { return !members_[0].master.requires_grad(); }

  // Whether the replica lacks a value: since they were copied last the version
  // counter of the module's tensor or of the replica's has moved.
  bool Lacks(size_t replica) const;

  // Puts the values of a packed unit side by side, to be copied.
  void Pack();

  // Copies the values to the replica. Autograd hears of those that have
  // changed. May be called for several replicas at once, by a thread each.
  void CopyTo(size_t replica);

  int64_t bytes_copied() const;

 private:
  struct Versions {
    bool known = false;
    uint32_t master = 0;
    uint32_t replica = 0;
  };

  void GiveMemory(size_t replica, c10::Device device);

  Kind kind_;
  std::vector<ReplicatedTensor> members_;
  std::vector<int64_t> offsets_;    // of members in a block, in elements
  int64_t length_ = 0;              // of a block
  at::Tensor source_;               // what is copied
  std::vector<at::Tensor> blocks_;  // by replica
  std::vector<std::vector<Versions>> versions_;  // by replica and member
  std::vector<int64_t> bytes_;                   // by replica
};

// Puts all in units: spans where they lie side by side, as in a flat buffer;
// small ones packed; others alone.
std::vector<CopyUnit> MakeCopyUnits(
    const std::vector<ReplicatedTensor>& tensors,
    const std::vector<c10::Device>& devices);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_COPY_UNITS_H_
