// Kept buffers: what a module that runs again would change a second time
// (BatchNorm's running statistics), put back afterwards.

#ifndef TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_KEPT_BUFFERS_H_
#define TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_KEPT_BUFFERS_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace tandem {

// When it goes, `buffers` hold what they held when it came. Autograd does not
// count that as a change. Throws c10::Error where there is no memory.
class KeptBuffers {
 public:
  explicit KeptBuffers(std::vector<at::Tensor> buffers);
  ~KeptBuffers();
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  const std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;
};

// A context for CheckpointOptions::recompute_context in which `buffers` are
// kept; another one, which may be null, is around it.
std::function<std::shared_ptr<void>()> KeepingBuffers(
    std::vector<at::Tensor> buffers,
    std::function<std::shared_ptr<void>()> around = nullptr);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_ACTIVATION_CHECKPOINTING_KEPT_BUFFERS_H_
