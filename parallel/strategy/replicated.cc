#include "parallel/strategy/replicated.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/layer_list.h"
#include "parallel/schedule/sequential.h"
#include "parallel/strategy/hybrid.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Strategy>> MakeReplicated(
    const LayerList& layers, const LossFunction& loss,
    const ReplicatedOptions& options, Communicator& data) {
  if (options.accumulation_steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("accumulation_steps must be at least 1, but ",
                     options.accumulation_steps, " was given"));
  }
  HybridOptions hybrid;
  static_cast<UpdateOptions&>(hybrid) = options;
  TANDEM_ASSIGN_OR_RETURN(
      hybrid.schedule,
      SequentialSchedule(1, static_cast<int>(options.accumulation_steps)));
  hybrid.devices = {options.device};
  hybrid.ddp = options.ddp;
  hybrid.averaging = options.averaging;
  hybrid.seed = options.seed;
  if (options.hook) {
    hybrid.make_hook = [hook = options.hook] { return hook; };
  }
  return Hybrid::Create(SpecsOf(layers), loss, hybrid, &data);
}

}  // namespace tandem
