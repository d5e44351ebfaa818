#include "parallel/strategy/stage/stage_reducer.h"

#include "core/base/status_macros.h"

namespace tandem {

absl::Status StageReducer::Prepare() {
  has_acted_ = false;
  reducer_->set_synchronise(false);
  return reducer_->PrepareForForward();
}

absl::Status StageReducer::Begin() {
  TANDEM_RETURN_IF_ERROR(reducer_->Finish());  // of those that only gathered
  reducer_->set_synchronise(true);
  reducer_->Begin();
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
  if (last && !at_end_) reducer_->MarkGathered();
  return absl::OkStatus();
}

absl::Status StageReducer::Finish() {
  if (!has_acted_ && averages_) return reducer_->AddNothing();
  if (averages_ && at_end_) {
    TANDEM_RETURN_IF_ERROR(Begin());
    reducer_->MarkGathered();
  }
  return reducer_->Finish();
}

}  // namespace tandem
