// Optimizer::StepUnless: what a device leaves out was no step, though the host
// does not hear of it until it asks.

#include <ATen/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/named_tensors.h"
#include "core/random/random.h"
#include "core/testing/device_types.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/optimizer.h"

namespace tandem::step_unless_test {
namespace {

// Of a step: is it left out, and do parameters "a" and "b" have a gradient?
struct Step {
  bool skipped = false;
  bool a = true;
  bool b = true;
};

class Model {
 public:
  explicit Model(const OptimizerOptions& options) {
    for (const char* name : {"a", "b"}) {
      parameters_.emplace_back(name, at::randn({5}, GeneratorFor(1, name))
                                         .to(TestDevice())
                                         .requires_grad_());
    }
    buffers_ = MakeFlatBuffers(parameters_);
    optimizer_ = *MakeOptimizer(options, FlatBufferList(buffers_));
  }

  void Backward(int number, const Step& step) {
    for (const auto& buffer : buffers_) buffer->ZeroGrad();
    for (size_t i = 0; i < 2; ++i) {
      if (i == 0 ? !step.a : !step.b) continue;
      const at::Tensor weights =
          at::full({5}, 0.3 * (number + 1), TestDevice());
      parameters_[i].second.square().mul(weights).sum().backward();
    }
  }

  Optimizer& optimizer() { return *optimizer_; }
  NamedTensors All() const {
    NamedTensors all = optimizer_->State();
    all.insert(all.end(), parameters_.begin(), parameters_.end());
    return all;
  }

 private:
  NamedTensors parameters_;
  FlatBuffers buffers_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::vector<OptimizerOptions> Optimizers() {
  SgdOptions damped{0.9};
  damped.dampening = 0.5;
  AdamOptions greatest;
  greatest.amsgrad = true;
  return {SgdOptions(),  SgdOptions{0.9}, damped,
          AdamOptions(), greatest,        AdamWOptions()};
}

at::Tensor FourOnDevice(const FlatBuffer& /*buffer*/) {
  return at::full({}, 4, at::TensorOptions(TestDevice()).dtype(at::kFloat));
}

class StepUnlessTest : public DeviceTypeTest {};

TEST_P(StepUnlessTest, HasTheBitsOfStepsThatTheHostLeavesOut) {
  const std::vector<std::vector<Step>> jobs = {
      {{}, {true}, {}, {true}, {true}, {}},
      {{true}, {true}, {}, {}},                // a late first step
      {{}, {false, true, false}, {true}, {}},  // other parameters
      {{true, true, false}, {false, false, true}, {}, {true}, {}}};
  for (size_t i = 0; i < Optimizers().size(); ++i) {
    for (size_t j = 0; j < jobs.size(); ++j) {
      SCOPED_TRACE(std::to_string(i) + ", job " + std::to_string(j));
      Model found(Optimizers()[i]), expected(Optimizers()[i]);
      for (size_t number = 0; number < jobs[j].size(); ++number) {
        const Step& step = jobs[j][number];
        const double rate = 0.1 / static_cast<double>(number + 1);
        found.Backward(static_cast<int>(number), step);
        found.optimizer().StepUnless(
            at::full({}, step.skipped ? 1.0f : 0.0f,
                     at::TensorOptions(TestDevice()).dtype(at::kFloat)),
            rate);
        if (step.skipped) continue;
        expected.Backward(static_cast<int>(number), step);
        expected.optimizer().Step(rate);
      }
      const NamedTensors its = found.All(), wanted = expected.All();
      ASSERT_EQ(its.size(), wanted.size());
      for (size_t k = 0; k < its.size(); ++k) {
        EXPECT_EQ(its[k].first, wanted[k].first);
        EXPECT_TRUE(its[k].second.equal(wanted[k].second)) << its[k].first;
      }
    }
  }
}

TEST_P(StepUnlessTest, DividesGradients) {
  Model found(SgdOptions{0.9}), expected(SgdOptions{0.9});
  const at::TensorOptions options =
      at::TensorOptions(TestDevice()).dtype(at::kFloat);
  found.Backward(0, {});
  found.optimizer().StepUnless(at::full({}, 0, options), 0.1, FourOnDevice);
  expected.Backward(0, {});
  expected.optimizer().Step(0.1, [](const FlatBuffer&) { return 4.0; });
  for (size_t k = 0; k < found.All().size(); ++k) {
    EXPECT_TRUE(found.All()[k].second.equal(expected.All()[k].second)) << k;
  }
}

TEST_P(StepUnlessTest, DividesAsStepDoes) {
  Model found(AdamOptions{}), expected(AdamOptions{});
  const at::TensorOptions options =
      at::TensorOptions(TestDevice()).dtype(at::kFloat);
  found.Backward(0, {});
  found.optimizer().Step(0.1, FourOnDevice);
  expected.Backward(0, {});
  expected.optimizer().StepUnless(at::full({}, 0, options), 0.1, FourOnDevice);
  for (size_t k = 0; k < found.All().size(); ++k) {
    EXPECT_TRUE(found.All()[k].second.equal(expected.All()[k].second)) << k;
  }
}

TANDEM_ON_DEVICE_TYPES(StepUnlessTest);

}  // namespace
}  // namespace tandem::step_unless_test
