// Own values: what a replica that trains apart from others has, put aside while
// its parameters and buffers are what all of them come to.

#ifndef TANDEM_PARALLEL_STRATEGY_STAGE_OWN_VALUES_H_
#define TANDEM_PARALLEL_STRATEGY_STAGE_OWN_VALUES_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// Copies of some flat buffers' values and of other tensors, all of which must
// outlive it. Throws c10::Error.
class OwnValues {
 public:
  OwnValues(FlatBufferList buffers, std::vector<at::Tensor> others);

  // Puts them back.
  void Restore() const;

 private:
  FlatBufferList buffers_;
  std::vector<at::Tensor> others_;
  std::vector<at::Tensor> values_, copies_;  // of both, in their order
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STAGE_OWN_VALUES_H_
