#include "tests/parallel/strategy/further_inputs_model.h"

#include <ATen/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "absl/strings/str_cat.h"
#include "core/random/random.h"
#include "models/classification_loss.h"
#include "tests/parallel/pipeline/rank_pipeline.h"

namespace tandem {
namespace further_inputs {
namespace {

constexpr int64_t kTypes = 4;
constexpr int64_t kClasses = 5;

}  // namespace

LayerSpecs Specs() {
  LayerLinks types, views, leave, mask, last;
  types.reads = {"types"};
  views.reads = {"views[0]", "views[1]"};
  leave.stash = {"long"};
  mask.reads = {"mask"};
  last.pop = {"long"};
  last.reads = {"mask"};
  return {TanhLinear("fc", kWidth, kWidth),
          WithWeight(
              "types", {kTypes, kWidth}, types,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                return x + at::embedding(weight, skips.at("types"));
              }),
          WithWeight(
              "leave", {kWidth, kWidth}, leave,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                skips["long"] = x;
                return at::linear(x, weight).tanh();
              }),
          WithWeight(
              "views", {kWidth, kWidth}, views,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                const at::Tensor both =
                    skips.at("views[0]") - skips.at("views[1]");
                return x + at::linear(both, weight);
              }),
          WithWeight(
              "mask", {kWidth, kWidth}, mask,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                return at::linear(x * skips.at("mask"), weight);
              }),
          TanhLinear("between", kWidth, kWidth),
          WithWeight(
              "last", {kClasses, kWidth}, last,
              [](const at::Tensor& weight, const at::Tensor& x, Skips& skips) {
                const at::Tensor past = skips.extract("long").mapped();
                return at::linear(x + past * skips.at("mask"), weight);
              })};
}

Batch BatchOf(int number) {
  const at::Generator generator =
      GeneratorFor(kSeed, absl::StrCat("batch ", number));
  const auto image = [&] { return at::randn({kSamples, kWidth}, generator); };
  Batch batch;
  batch.size = kSamples;
  batch.inputs = image();
  batch.targets = at::randint(kClasses, {kSamples}, generator, at::kLong);
  batch.further_inputs["types"] =
      at::randint(kTypes, {kSamples}, generator, at::kLong);
  batch.further_inputs["views"] =
      c10::ivalue::Tuple::create({image(), image()});
  batch.further_inputs["mask"] =
      at::rand({kSamples, kWidth}, generator).gt(0.3).to(at::kFloat);
  return batch;
}

LabJob Job(int64_t microbatch_size) {
  LabJob job;
  job.specs = Specs;
  job.loss = CrossEntropy;
  job.change = [microbatch_size](MeshStrategyOptions& options) {
    options.seed = kSeed;
    options.microbatch_size = microbatch_size;
  };
  // The whole batch on each rank: gradients are its, and replicas' mean too.
  job.share = [](int step, int) { return BatchOf(step); };
  job.steps = kSteps;
  job.rate = kRate;
  return job;
}

}  // namespace further_inputs
}  // namespace tandem
