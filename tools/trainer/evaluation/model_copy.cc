#include "tools/trainer/evaluation/model_copy.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/row_parts.h"
#include "core/checkpoint/tensor_stream.h"
#include "core/model/layer_list.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/job/model.h"

namespace tandem {
namespace {

// Copies a job's weights into the tensors of the same names: averages of
// parameters, where they come too, in place of the parameters.
class WeightCopy : public TensorSink {
 public:
  explicit WeightCopy(const LayerList& layers)
      : parameters_(NamedParameters(layers)), buffers_(NamedBuffers(layers)) {}

  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override {
    return a.name < b.name;
  }

  absl::Status Begin(std::vector<TensorInfo> infos) override {
    infos_ = std::move(infos);
    std::map<std::string, at::Tensor> targets(buffers_.begin(), buffers_.end());
    for (const auto& each : parameters_) targets.insert(each);
    std::set<std::string> coming;
    for (const TensorInfo& info : infos_) coming.insert(info.name);
    for (const auto& [name, parameter] : parameters_) {
      const std::string average =
          CheckpointNameOfState(absl::StrCat(name, ".", kAverageState));
      if (coming.count(average) == 0) continue;
      targets.erase(name);
      targets[average] = parameter;
    }
    for (const TensorInfo& info : infos_) {
      const auto found = targets.find(info.name);
      targets_.push_back(found == targets.end() ? at::Tensor() : found->second);
    }
    return absl::OkStatus();
  }

  absl::Status Add(const at::Tensor& values) override {
    const at::Tensor& target = targets_[added_++];
    if (!target.defined()) return absl::OkStatus();
    return CatchTorch(
        [&] {
          const at::NoGradGuard no_grad;
          target.copy_(values);
        },
        absl::StrCat("a copy of ", infos_[added_ - 1].name));
  }

 private:
  const NamedTensors parameters_;
  const NamedTensors buffers_;
  std::vector<TensorInfo> infos_;
  std::vector<at::Tensor> targets_;  // by what comes; undefined: not copied
  size_t added_ = 0;
};

}  // namespace

absl::StatusOr<LayerList> MakeModelCopy(const Job& job) {
  TrainOptions options = job.options;
  options.loss_chunk = 0;
  options.vocab_parallel = 1;
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs,
                          JobLayers(options, job.transformer, *job.data.train));
  TANDEM_ASSIGN_OR_RETURN(LayerList layers,
                          MakeModelLayers(specs, options.seed));
  SetTraining(layers, false);
  return layers;
}

absl::Status UpdateModelCopy(Job& job, const LayerList& copy) {
  TANDEM_RETURN_IF_ERROR(job.strategy->Synchronise());
  StateParts parts;
  parts.optimizer = job.options.ema_decay > 0;  // averages are part of it
  WeightCopy weights(copy);
  JoinedRows whole(job.row_parts, weights);
  return job.strategy->StreamState(parts, whole);
}

}  // namespace tandem
