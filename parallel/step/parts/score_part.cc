// Score: a step's loss and correct predictions, summed over ranks.

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/communicator.h"
#include "core/comm/pending_collective.h"
#include "core/flight/recorder.h"
#include "core/loss/loss.h"
#include "core/model/batch.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/ordered_sums.h"
#include "parallel/step/parts/rows.h"
#include "parallel/step/step_score.h"

namespace tandem {
namespace {

class ScorePart : public StepPart {
 public:
  explicit ScorePart(const MeshModel& model) : model_(model) {}

  void AddNumbers(const PendingStep& step,
                  std::vector<at::Tensor>* numbers) const override {
    for (const DeferredScore& each : step.losses.scores) {
      if (each.sums.defined()) numbers->push_back(each.sums);
    }
  }

  absl::Status Read(PendingStep& step, const double*& numbers,
                    StepScore* score) override;

 private:
  const MeshModel& model_;
};

absl::Status ScorePart::Read(PendingStep& step, const double*& numbers,
                             StepScore* score) {
  std::vector<Score> mine;
  Score sum;
  for (const DeferredScore& each : step.losses.scores) {
    mine.push_back(FullScore(each, numbers));
    sum += mine.back();
  }
  score->own = sum;
  Communicator* const group =
      step.alike ? model_.groups.scores() : model_.groups.pipe();
  const CollectivePurpose purpose = [number = step.number] {
    return absl::StrCat("the loss of step ", number);
  };
  const FlightPurposeScope flight({"loss"});
  TANDEM_ASSIGN_OR_RETURN(score->score, model_.options.reproducible
                                            ? SumInOrder(model_, mine, purpose)
                                            : SumOver(group, sum, purpose));
  return absl::OkStatus();
}

}  // namespace

constexpr StepPartRow kScoreRow = {"score", MakeStepPart<ScorePart>};

}  // namespace tandem
