// Updates that come last: no parameter changes before the last collective of
// the step's gradients and buffers has ended on this rank, so that a step that
// one of them breaks off can be done again. Where a replica is on several
// ranks, all have then ended theirs: either none has changed, or each can, so
// that the parts of a replica stay those of one step.

#include <memory>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/instrument/fault_point.h"
#include "core/mesh/mesh.h"
#include "parallel/sharding/optimizer_sharding.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"

namespace tandem {
namespace {

class UpdatesLastPart : public StepPart {
 public:
  // `ranks`: all, which wait for each other; null: they need not.
  explicit UpdatesLastPart(Communicator* ranks) : ranks_(ranks) {}

  void Plan(StepContext& step) const override {
    step.updates_last = true;
    step.updates_at_once = false;
  }

  absl::Status BeforeUpdate(StepContext& step) override {
    if (ranks_ == nullptr) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(FaultPoint("updates_last"));
    step.is_local = true;
    return ranks_->Barrier([] { return "until all have their gradients"; });
  }

 private:
  Communicator* const ranks_;
};

// One device alone updates after its collectives anyhow.
absl::StatusOr<std::unique_ptr<StepPart>> MakeUpdatesLast(MeshModel& model) {
  const bool is_divided = model.mesh.ranks_of_replica() > 1;
  if (!model.options.updates_last ||
      (model.options.devices.size() == 1 && !is_divided)) {
    return std::unique_ptr<StepPart>();
  }
  return std::make_unique<UpdatesLastPart>(is_divided ? model.groups.world()
                                                      : nullptr);
}

void DescribeUpdatesLast(const MeshStrategyOptions& options,
                         NamedValues& values) {
  values["updates_last"] = SwitchText(options.updates_last);
}

// Techniques with collectives of their own in the update, or behind it.
constexpr Exclusion kUpdatesLastExcludes[] = {
    {"shard",
     [](const MeshStrategyOptions& options) {
       return options.shard != Sharding::kOff;
     },
     "shard", "shard=optimizer|gradients|parameters",
     "$0 takes a lost rank's state from a neighbour, who must have all of it, "
     "but $1 was given: leave one out"},
    {"averaging",
     [](const MeshStrategyOptions& options) {
       return options.averaging.has_value();
     },
     "averaging of parameters", "average_parameters_every>1",
     "$0 goes on from any replica's parameters, which must be alike, but $1 "
     "was given: leave one out"},
};

}  // namespace

constexpr StepPartRow kUpdatesLastRow = {
    "updates_last",
    MakeUpdatesLast,
    DescribeUpdatesLast,
    nullptr,
    {[](const MeshStrategyOptions& options) { return options.updates_last; },
     "updates_last excludes ",
     ", whose updates have collectives; leave one of them out",
     kUpdatesLastExcludes, "replace_replicas"}};

}  // namespace tandem
