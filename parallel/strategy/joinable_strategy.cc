#include "parallel/strategy/joinable_strategy.h"

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/model/batch.h"

namespace tandem {
namespace {

class StepsWithoutSamples : public JoinHook {
 public:
  StepsWithoutSamples(MeshStrategy& strategy, UnevenDivision before,
                      const std::function<double()>& learning_rate)
      : strategy_(strategy), before_(before), learning_rate_(learning_rate) {}

  ~StepsWithoutSamples() override {
    strategy_.SetUnevenDivision(before_).IgnoreError();
  }

  absl::Status MainHook() override {
    return strategy_.TrainStep(Batch(), learning_rate_()).status();
  }

 private:
  MeshStrategy& strategy_;
  const UnevenDivision before_;
  const std::function<double()>& learning_rate_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<JoinHook>> JoinableStrategy::MakeJoinHook(
    const JoinOptions& options) {
  const UnevenDivision before = strategy_.uneven_division();
  TANDEM_RETURN_IF_ERROR(strategy_.SetUnevenDivision(
      options.divide_by_initial_world_size ? UnevenDivision::kInitialReplicas
                                           : UnevenDivision::kPresentReplicas));
  std::unique_ptr<JoinHook> hook =
      std::make_unique<StepsWithoutSamples>(strategy_, before, learning_rate_);
  return hook;
}

}  // namespace tandem
