#include "tests/parallel/ddp/parity_mlp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/testing/device_types.h"
#include "tests/models/formula_values.h"

namespace tandem {

ParityMlp::ParityMlp(const std::string& suffix)
    : fc1(register_module("fc1",
                          torch::nn::Linear(kParityInputs, kParityWidth))),
      fc2(register_module("fc2",
                          torch::nn::Linear(kParityWidth, kParityWidth))),
      branch(register_module("branch",
                             torch::nn::Linear(kParityWidth, kParityWidth))),
      fc3(register_module("fc3",
                          torch::nn::Linear(kParityWidth, kParityClasses))) {
  at::NoGradGuard no_grad;
  for (auto& parameter : named_parameters()) {
    FillByFormula(parameter.key() + suffix, parameter.value());
  }
  to(TestDevice());
}

at::Tensor ParityMlp::forward(at::Tensor x, bool use_branch, int times) {
  x = fc1(x).tanh();
  for (int i = 0; i < times; ++i) x = fc2(x).tanh();
  if (use_branch) x = x.add(branch(x));
  return fc3(x);
}

ParityBatch MakeParityBatch(int step, int rank, int microbatch) {
  ParityBatch batch;
  batch.inputs = at::empty({kParityBatch, kParityInputs});
  FillByFormula(absl::StrCat("batch.", step, ".", rank, ".", microbatch),
                batch.inputs);
  batch.targets = at::arange(kParityBatch, at::kLong)
                      .mul(3)
                      .add(step + 2 * rank + microbatch)
                      .remainder(kParityClasses)
                      .to(TestDevice());
  batch.inputs = batch.inputs.to(TestDevice());
  return batch;
}

at::Tensor ParityLoss(const at::Tensor& outputs, const ParityBatch& batch) {
  return at::cross_entropy_loss(outputs, batch.targets);
}

at::Tensor FlattenParameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : module.parameters()) {
    parts.push_back(parameter.detach().flatten());
  }
  return at::cat(parts).cpu();
}

at::Tensor FlattenGradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : module.parameters()) {
    const at::Tensor& gradient = parameter.grad();
    parts.push_back(
        gradient.defined()
            ? gradient.detach().flatten()
            : at::full_like(parameter.detach(), std::nan("")).flatten());
  }
  return at::cat(parts).cpu();
}

}  // namespace tandem
