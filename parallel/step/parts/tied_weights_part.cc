// Tied weights: copies that lie in several stages take one value at the
// beginning, and get the sum of all copies' gradients in each step.

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status_macros.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/pipeline/channels.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/tied_gradients.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

class TiedWeightsPart : public StepPart {
 public:
  explicit TiedWeightsPart(const MeshModel& model) : model_(model) {}

  absl::Status Start() override {
    const MeshStrategyOptions& options = model_.options;
    const PipelineLayout layout = {options.devices, model_.groups.pipe()};
    std::vector<FlatBuffer*> buffers;
    for (const TrainedStage* stage : model_.AllStages()) {
      for (FlatBuffer* buffer : stage->parameters().all()) {
        buffers.push_back(buffer);
      }
    }
    TANDEM_ASSIGN_OR_RETURN(
        tied_,
        TiedGradients::Create(
            model_.tied, options.schedule, layout,
            FlatBufferList(std::move(buffers)),
            options.reproducible ? TiedOrder::kByCopy : TiedOrder::kByRank));
    return model_.Agree(tied_->ShareValues());
  }

  void Plan(StepContext& step) const override {
    if (!tied_->empty()) step.updates_at_once = false;
  }

  absl::Status AfterBackward(StepContext& step) override {
    return tied_->Sum();
  }

  absl::Status Synchronize() const override { return tied_->Synchronize(); }
  void Abort(const absl::Status& reason) override { tied_->Abort(reason); }

 private:
  const MeshModel& model_;
  std::unique_ptr<TiedGradients> tied_;
};

}  // namespace

constexpr StepPartRow kTiedWeightsRow = {"tied_weights",
                                         MakeStepPart<TiedWeightsPart>};

}  // namespace tandem
