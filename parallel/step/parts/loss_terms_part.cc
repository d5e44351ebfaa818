// Loss terms: losses that layers and the loss function added to what is
// trained, and sums that they gave for reports, by name, on every rank.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/loss/loss_terms.h"
#include "parallel/step/loss_sums.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"

namespace tandem {
namespace {

class LossTermsPart : public StepPart {
 public:
  explicit LossTermsPart(const MeshModel& model) : model_(model) {}

  absl::Status AfterBackward(StepContext& step) override;
  void AddNumbers(const PendingStep& step,
                  std::vector<at::Tensor>* numbers) const override {
    for (const LossTerm& each : step.losses.terms) {
      numbers->push_back(each.loss);
    }
  }
  absl::Status Read(PendingStep& step, const double*& numbers,
                    StepScore* score) override;

 private:
  const MeshModel& model_;
  LossSums losses_, sums_;
};

absl::Status LossTermsPart::AfterBackward(StepContext& step) {
  const int64_t count = model_.options.schedule.microbatches;
  // A pass's weight is its share of the step's samples, but for what makes a
  // mean over replicas of it.
  const double share = model_.options.reproducible || !step.ends_alike
                           ? 1
                           : 1.0 / model_.groups.replicas();
  for (LossTerm& each : step.pending->losses.terms) {
    each.microbatch += model_.groups.replica() * count;
    each.weight = each.is_sum ? 1 : each.weight * share;
  }
  return absl::OkStatus();
}

absl::Status LossTermsPart::Read(PendingStep& step, const double*& numbers,
                                 StepScore* score) {
  Communicator* const group =
      step.alike ? model_.groups.scores() : model_.groups.pipe();
  std::vector<LossSums::Part> losses, sums;
  for (const LossTerm& each : step.losses.terms) {
    (each.is_sum ? sums : losses)
        .push_back({each.name, each.microbatch, *numbers++ * each.weight});
  }
  const int64_t all =
      model_.groups.replicas() * model_.options.schedule.microbatches;
  TANDEM_RETURN_IF_ERROR(losses_.Sum(losses, all, group));
  TANDEM_RETURN_IF_ERROR(sums_.Sum(sums, all, group));
  score->auxiliary_losses = losses_.sums();
  score->sums = sums_.sums();
  return absl::OkStatus();
}

}  // namespace

constexpr StepPartRow kLossTermsRow = {"loss_terms",
                                       MakeStepPart<LossTermsPart>};

}  // namespace tandem
