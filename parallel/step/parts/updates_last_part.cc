// Updates that come last: no parameter changes before the last collective of
// the step's gradients and buffers has ended on this rank, so that a step that
// one of them breaks off can be done again.

#include <memory>

#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"

namespace tandem {
namespace {

class UpdatesLastPart : public StepPart {
 public:
  void Plan(StepContext& step) const override {
    step.updates_last = true;
    step.updates_at_once = false;
  }
};

// One device alone updates after its collectives anyhow.
absl::StatusOr<std::unique_ptr<StepPart>> MakeUpdatesLast(MeshModel& model) {
  if (!model.options.updates_last || model.options.devices.size() == 1) {
    return std::unique_ptr<StepPart>();
  }
  return std::make_unique<UpdatesLastPart>();
}

}  // namespace

constexpr StepPartRow kUpdatesLastRow = {"updates_last", MakeUpdatesLast};

}  // namespace tandem
