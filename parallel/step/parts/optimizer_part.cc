// Optimizers: gradients are clipped, and parameters stepped.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/variant.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/parameter_update.h"
#include "parallel/schedule/schedule.h"
#include "parallel/step/mesh_model.h"
#include "parallel/step/parts/rows.h"
#include "parallel/strategy/stage/trained_stage.h"

namespace tandem {
namespace {

class OptimizerPart : public StepPart {
 public:
  explicit OptimizerPart(const MeshModel& model) : model_(model) {}

  absl::Status Update(const StepContext& step, int stage) override {
    if (!step.learning_rate.has_value()) return absl::OkStatus();
    ParameterUpdate& update = model_.stage(stage).update();
    // With norms they are clipped already.
    if (!step.norms.has_value()) update.ClipValues();
    at::Tensor found_inf;
    if (!step.found_inf.empty()) {
      const int device = DeviceOfStage(model_.options.schedule, stage);
      found_inf = step.found_inf[model_.LocalDevice(device)];
    }
    return update.Step(*step.learning_rate, step.norms, found_inf);
  }

 private:
  const MeshModel& model_;
};

struct OptimizerText {
  std::string operator()(const SgdOptions& sgd) const {
    return absl::StrCat("sgd with momentum ", NumberText(sgd.momentum),
                        ", dampening ", NumberText(sgd.dampening),
                        ", weight_decay ", NumberText(sgd.weight_decay),
                        ", nesterov ", SwitchText(sgd.nesterov));
  }
  std::string operator()(const AdamOptions& adam) const {
    return absl::StrCat("adam", Betas(adam));
  }
  std::string operator()(const AdamWOptions& adamw) const {
    return absl::StrCat("adamw", Betas(adamw));
  }
  std::string operator()(const MuonOptions& muon) const {
    const auto [a, b, c] = muon.ns_coefficients;
    return absl::StrCat(
        "muon with momentum ", NumberText(muon.momentum), ", weight_decay ",
        NumberText(muon.weight_decay), ", nesterov ", SwitchText(muon.nesterov),
        ", ns_coefficients ", NumberText(a), ", ", NumberText(b), ", ",
        NumberText(c), ", eps ", NumberText(muon.eps), ", ns_steps ",
        muon.ns_steps, ", adjust_lr ", static_cast<int>(muon.adjust_lr),
        ", learning_rate_factor ", NumberText(muon.learning_rate_factor));
  }

 private:
  template <typename Options>
  static std::string Betas(const Options& options) {
    return absl::StrCat(" with beta1 ", NumberText(options.beta1), ", beta2 ",
                        NumberText(options.beta2), ", eps ",
                        NumberText(options.eps), ", weight_decay ",
                        NumberText(options.weight_decay), ", amsgrad ",
                        SwitchText(options.amsgrad));
  }
};

void DescribeOptimizer(const MeshStrategyOptions& options,
                       NamedValues& values) {
  values["optimizer"] = absl::visit(OptimizerText(), options.optimizer);
  for (size_t i = 0; i < options.further_optimizers.size(); ++i) {
    values[absl::StrCat("further_optimizers[", i, "]")] =
        absl::visit(OptimizerText(), options.further_optimizers[i]);
  }
  values["optimizer_group"] = SwitchText(options.optimizer_group != nullptr);
}

constexpr const char* kOptimizerFlags[] = {"amsgrad", "momentum"};

}  // namespace

constexpr StepPartRow kOptimizerRow = {"optimizer",
                                       MakeStepPart<OptimizerPart>,
                                       DescribeOptimizer,
                                       /*check=*/nullptr,
                                       /*exclusions=*/{},
                                       /*further_state=*/nullptr,
                                       kOptimizerFlags};

}  // namespace tandem
