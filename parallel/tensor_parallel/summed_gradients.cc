#include "parallel/tensor_parallel/summed_gradients.h"

#include <utility>

#include "core/base/status_macros.h"
#include "core/flight/recorder.h"

namespace tandem {

SummedGradients::SummedGradients(std::vector<FlatBuffer*> buffers,
                                 Communicator& group)
    : buffers_(std::move(buffers)), group_(group) {}

absl::Status SummedGradients::Before(const Action& action, bool last) {
  static_cast<void>(action);
  static_cast<void>(last);
  return absl::OkStatus();
}

absl::Status SummedGradients::After(const Action& action, bool last) {
  static_cast<void>(action);
  static_cast<void>(last);
  return absl::OkStatus();
}

absl::Status SummedGradients::Finish() {
  constexpr const char* kWhat =
      "gradients of what ranks with parts of a layer share";
  const FlightPurposeScope flight({kWhat});
  for (const FlatBuffer* buffer : buffers_) {
    TANDEM_RETURN_IF_ERROR(
        group_.AllReduceSum(buffer->grad_memory().Own(), [] { return kWhat; }));
  }
  return absl::OkStatus();
}

}  // namespace tandem
