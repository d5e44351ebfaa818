#include "parallel/stage_reducer.h"

#include <utility>

#include "core/status_macros.h"

namespace tandem {

StageReducer::StageReducer(std::vector<FlatBuffer*> buffers,
                           Communicator& group, ReducerOptions options,
                           bool defers)
    : reducer_(std::move(buffers), group, std::move(options)),
      defers_(defers) {}

absl::Status StageReducer::Prepare() {
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
  return last && !defers_ ? Begin() : absl::OkStatus();
}

absl::Status StageReducer::After(const Action& /*action*/, bool last) {
  if (!last) return absl::OkStatus();
  if (defers_) TANDEM_RETURN_IF_ERROR(Begin());
  reducer_.MarkGathered();
  return absl::OkStatus();
}

absl::Status StageReducer::Finish() { return reducer_.Finish(); }

}  // namespace tandem
