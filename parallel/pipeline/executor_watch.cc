// What is watched of an executor, and what is said when it hangs.

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/torch_status.h"
#include "core/device/host_memory.h"
#include "core/flight/dump_file.h"
#include "core/flight/recorder.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/step.h"

namespace tandem {

const char* NameOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kBackwardInput:
      return "backward of the input";
    case ActionKind::kBackwardWeight:
      return "backward of the weights";
  }
  return "";
}

FlightRecorder::Id NoteFlight(const Action& action) {
  FlightPurpose purpose;
  purpose.stage = action.stage;
  purpose.microbatch = action.microbatch;
  const FlightPurposeScope scope(purpose);
  FlightOperation operation;
  operation.kind = FlightKind::kAction;
  operation.name = NameOf(action.kind);
  return FlightRecorder::OfProcess().Schedule(/*group=*/nullptr, operation);
}

std::string PipelineExecutor::Describe(const Action& action) const {
  return absl::StrCat(NameOf(action.kind), " of microbatch ", action.microbatch,
                      " in ",
                      stages_[static_cast<size_t>(action.stage)]->name());
}

void PipelineExecutor::OnHang(const Local& local, int action, Step& step) {
  const Action& where = (*local.actions)[static_cast<size_t>(action)];
  const Layer* const layer =
      stages_[static_cast<size_t>(where.stage)]->running_layer();
  const std::string message = absl::StrCat(
      Describe(where), " has been computing for ",
      absl::FormatDuration(absl::FromChrono(options_.hang_timeout)),
      layer == nullptr ? "" : absl::StrCat(", in layer ", layer->name),
      ": it cannot be stopped; look for a loop without an end there, or give "
      "it more time");
  Fail(step, absl::DeadlineExceededError(message));
  EndHung(message);
}

void PipelineExecutor::EndHung(const std::string& message) {
  DumpFlightOfFailure(FlightTrigger::kGaveUp, message);
  if (!options_.on_hang) EndProcess(message);
  options_.on_hang(message);
}

absl::StatusOr<std::vector<double>> PipelineExecutor::Read(
    const std::vector<at::Tensor>& numbers) {
  DeviceProgress& progress = locals_.back()->progress;
  watch_->Begin([this](size_t /*device*/, int /*action*/) {
    EndHung(absl::StrCat(
        "the devices have not come to the end of the last steps within ",
        absl::FormatDuration(absl::FromChrono(options_.hang_timeout)),
        ", where their losses are read: they cannot be stopped; look for an "
        "operator that does not end, or give it more time"));
  });
  progress.Starts(0, DeviceProgress::Clock::now());
  absl::StatusOr<std::vector<double>> read =
      CatchTorchOr([&] { return ReadNumbers(numbers); });
  progress.Ends();
  watch_->End();
  if (!read.ok()) return Annotate(read.status(), "reading losses");
  return read;
}

}  // namespace tandem
