#include "tools/bench/pipeline_result.h"

#include "tools/bench/median.h"

namespace tandem {

double EfficiencyOf(const PipelineSideResult& side, int devices) {
  if (side.step_ms.empty() || side.step_ms.size() != side.alone_ms.size()) {
    return 0;
  }
  return RatioOf(side.alone_ms, side.step_ms).ratio / devices;
}

}  // namespace tandem
