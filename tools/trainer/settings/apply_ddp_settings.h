// DDP settings as the strategy's options.

#ifndef TANDEM_TOOLS_TRAINER_SETTINGS_APPLY_DDP_SETTINGS_H_
#define TANDEM_TOOLS_TRAINER_SETTINGS_APPLY_DDP_SETTINGS_H_

#include "parallel/step/mesh_strategy_options.h"
#include "tools/trainer/settings/ddp_settings.h"

namespace tandem {

// Sets what `settings` says in `options`. Requires valid settings.
void Apply(const DdpSettings& settings, MeshStrategyOptions* options);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_SETTINGS_APPLY_DDP_SETTINGS_H_
