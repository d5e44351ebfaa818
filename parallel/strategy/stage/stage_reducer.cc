#include "parallel/strategy/stage/stage_reducer.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <utility>

#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {

StageReducer::StageReducer(std::vector<FlatBuffer*> buffers,
                           Communicator& group, ReducerOptions options,
                           bool defers)
    : buffers_(std::move(buffers)),
      finds_unused_(options.find_unused_parameters),
      reducer_(buffers_, group, std::move(options)),
      defers_(defers) {}

absl::Status StageReducer::Prepare() {
  has_acted_ = false;
  reducer_.set_synchronise(false);
  return reducer_.PrepareForForward();
}

absl::Status StageReducer::Begin() {
  TANDEM_RETURN_IF_ERROR(reducer_.Finish());  // of those that only gathered
  reducer_.set_synchronise(true);
  reducer_.Begin();
  return absl::OkStatus();
}

absl::Status StageReducer::Before(const Action& /*action*/, bool last) {
  has_acted_ = true;
  return last && !defers_ && !at_end_ && averages_ ? Begin() : absl::OkStatus();
}

absl::Status StageReducer::BeforeWeights(const Action& /*action*/) {
  return defers_ && !at_end_ && averages_ ? Begin() : absl::OkStatus();
}

absl::Status StageReducer::After(const Action& /*action*/, bool last) {
  if (last && !at_end_) reducer_.MarkGathered();
  return absl::OkStatus();
}

// Where unused parameters are looked for, all of this replica's are.
absl::Status StageReducer::AddNothing() {
  TANDEM_RETURN_IF_ERROR(Begin());
  if (finds_unused_) return absl::OkStatus();
  return CatchTorch([&] {
    const at::NoGradGuard no_grad;
    for (FlatBuffer* buffer : buffers_) {
      buffer->grads().zero_();
      for (size_t i = 0; i < buffer->slots().size(); ++i) {
        buffer->set_has_gradient(i, true);
      }
    }
    reducer_.MarkGathered();
  });
}

absl::Status StageReducer::Finish() {
  if (!has_acted_ && averages_) TANDEM_RETURN_IF_ERROR(AddNothing());
  if (has_acted_ && averages_ && at_end_) {
    TANDEM_RETURN_IF_ERROR(Begin());
    reducer_.MarkGathered();
  }
  return reducer_.Finish();
}

}  // namespace tandem
