// Muon against torch.optim.Muon's own numbers, and against singular values.

#include "parallel/optim/muon.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/optim/optimizer.h"

namespace tandem::muon_test {
namespace {

constexpr double kRate = 0.1;
constexpr int kSteps = 3;

// sin(0.37 n^2 + phase) of the n-th element, from 1: of full rank.
at::Tensor Filled(int64_t rows, int64_t columns, double phase) {
  const at::Tensor values = at::empty({rows, columns});
  auto* const data = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double n = static_cast<double>(i + 1);
    data[i] = static_cast<float>(std::sin(0.37 * n * n + phase));
  }
  return values.to(TestDevice());
}

// One matrix, and a step of so many others' gradients.
class OneMatrix {
 public:
  OneMatrix(int64_t rows, int64_t columns, const MuonOptions& options)
      : rows_(rows),
        columns_(columns),
        parameters_({{"w", Filled(rows, columns, 0).requires_grad_(true)}}),
        buffers_(MakeFlatBuffers(parameters_)),
        optimizer_(*MakeOptimizer(options, buffers_)) {}

  // `factor`: of the gradients.
  void Backward(int step, double factor = 1) {
    buffers_[0]->ZeroGrad();
    buffers_[0]->set_has_gradient(0, true);
    parameter().mutable_grad().copy_(Filled(rows_, columns_, step).mul(factor));
  }
  void Train(int from, int to) {
    for (int step = from; step < to; ++step) {
      Backward(step + 1);
      optimizer_->Step(kRate);
    }
  }

  at::Tensor parameter() const { return parameters_[0].second; }
  at::Tensor values() const { return parameter().detach().cpu(); }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  int64_t rows_, columns_;
  NamedTensors parameters_;
  FlatBuffers buffers_;
  std::unique_ptr<Optimizer> optimizer_;
};

struct Row {
  int64_t rows, columns;
  MuonOptions options;
  std::vector<float> values;  // of the parameter, after the steps
};

MuonOptions Adjusted(MuonAdjustment adjustment) {
  MuonOptions options;
  options.adjust_lr = adjustment;
  return options;
}

// By torch.optim.Muon of torch 2.15.0 on a CPU, in fp32, from Filled(., ., 0)
// by gradients Filled(., ., 1), (., ., 2) and (., ., 3):
//   optimizer = torch.optim.Muon([p], lr=0.1, ...)
//   for t in (1, 2, 3): p.grad = filled(rows, columns, t); optimizer.step()
std::vector<Row> PyTorchsRows() {
  MuonOptions plain = Adjusted(MuonAdjustment::kMatchRmsAdamW);
  plain.weight_decay = 0;
  plain.nesterov = false;
  plain.momentum = 0.9;
  plain.ns_steps = 3;
  return {
      {3,
       5,
       MuonOptions(),
       {0.205275, 0.984209, -0.09656, -0.493601, 0.312682, 0.543098, -0.766709,
        -1.004757, -0.992665, -0.760289, 0.568658, 0.262479, -0.452273,
        -0.168514, 0.999668}},
      {5,
       3,
       MuonOptions(),
       {0.211202, 0.983209, -0.034366, -0.514341, 0.348153, 0.497076, -0.767707,
        -0.985991, -0.98999, -0.762331, 0.541043, 0.299206, -0.43915, -0.099507,
        1.011428}},
      {4,
       4,
       plain,
       {0.306772, 0.956564, -0.126435, -0.407285, 0.235686, 0.634485, -0.708777,
        -1.032883, -1.03198, -0.692601, 0.660883, 0.189546, -0.352993,
        -0.199397, 0.96447, 0.401818}},
      {6,
       2,
       Adjusted(MuonAdjustment::kSpectralUnclamped),
       {0.134333, 0.891017, -0.029103, -0.515718, 0.328429, 0.555529, -0.812143,
        -1.046436, -1.057873, -0.81791, 0.618333, 0.314491}},
  };
}

class MuonTest : public DeviceTypeTest {};

// But for the last bit of bfloat16, of which other processors' products make
// another in each step: 0.1 x 2^-8, by a factor of 1.7 at most.
TEST_P(MuonTest, HasPyTorchsNumbers) {
  for (const Row& row : PyTorchsRows()) {
    OneMatrix matrix(row.rows, row.columns, row.options);
    matrix.Train(0, kSteps);
    const at::Tensor expected =
        at::tensor(row.values).view({row.rows, row.columns});
    EXPECT_TRUE(at::allclose(matrix.values(), expected, /*rtol=*/0,
                             /*atol=*/2e-3))
        << matrix.values() << "\n"
        << expected;
  }
}

// In double, and as it is usually written down.
at::Tensor Oracle(const at::Tensor& matrix, const MuonOptions& options) {
  const auto [a, b, c] = options.ns_coefficients;
  at::Tensor x = matrix.to(at::kDouble);
  x = x / x.square().sum().sqrt();
  for (int64_t i = 0; i < options.ns_steps; ++i) {
    const at::Tensor gram = x.matmul(x.t());
    x = a * x + (b * gram + c * gram.matmul(gram)).matmul(x);
  }
  return x;
}

TEST_P(MuonTest, IteratesAsInDoubleWithinBfloat16) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 5}, {5, 3}, {4, 4}}) {
    const at::Tensor matrix = Filled(rows, columns, 1);
    const at::Tensor found = NewtonSchulz(matrix, MuonOptions());
    EXPECT_EQ(found.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::allclose(found.cpu().to(at::kDouble),
                             Oracle(matrix.cpu(), MuonOptions()),
                             /*rtol=*/0, /*atol=*/0.05));
    EXPECT_TRUE(matrix.equal(Filled(rows, columns, 1)));
  }
}

TEST_P(MuonTest, SingularValuesComeNearOne) {
  for (const double scale : {1e-6, 1.0, 1e6}) {
    for (const int64_t rows : {16, 64, 256}) {
      const at::Tensor matrix = at::randn({rows, 64}).mul(scale);
      const at::Tensor values = at::linalg_svdvals(
          NewtonSchulz(matrix.to(TestDevice()), MuonOptions())
              .cpu()
              .to(at::kDouble));
      EXPECT_LT(values.max().item<double>(), 1.3) << rows << ", " << scale;
      // A square matrix has a value that is next to nothing.
      if (rows != 64) {
        EXPECT_GT(values.min().item<double>(), 0.5) << rows << ", " << scale;
      }
    }
  }
  const at::Tensor nothing = at::zeros({4, 3}, TestDevice());
  EXPECT_TRUE(NewtonSchulz(nothing, MuonOptions())
                  .cpu()
                  .to(at::kFloat)
                  .equal(at::zeros({4, 3})));
}

TEST_P(MuonTest, GoesOnFromItsStateWithTheSameBits) {
  OneMatrix whole(3, 5, MuonOptions()), first(3, 5, MuonOptions()),
      second(3, 5, MuonOptions());
  whole.Train(0, 5);
  EXPECT_TRUE(first.optimizer().State().empty());
  first.Train(0, 2);
  const NamedTensors state = first.optimizer().State();
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].first, "w.momentum_buffer");
  EXPECT_EQ(state[0].second.sizes(), at::IntArrayRef({3, 5}));
  second.parameter().detach().copy_(first.parameter().detach());
  ExpectOk(second.optimizer().LoadState(state));
  second.Train(2, 5);
  EXPECT_TRUE(second.values().equal(whole.values()));
}

TEST_P(MuonTest, DividesGradientsInPlace) {
  OneMatrix found(3, 5, MuonOptions()), expected(3, 5, MuonOptions());
  found.Backward(1, /*factor=*/4);
  found.optimizer().Step(kRate, [](const FlatBuffer&) { return 4.0; });
  expected.Backward(1);
  expected.optimizer().Step(kRate);
  EXPECT_TRUE(found.values().equal(expected.values()));
  EXPECT_TRUE(found.parameter().grad().equal(expected.parameter().grad()));
}

// What overflowed is in no number.
TEST_P(MuonTest, AStepThatTheDeviceLeavesOutChangesNothing) {
  OneMatrix found(3, 5, MuonOptions()), expected(3, 5, MuonOptions());
  const auto verdict = [](float number) {
    return at::full({}, number,
                    at::TensorOptions(TestDevice()).dtype(at::kFloat));
  };
  for (int step = 0; step < 4; ++step) {
    const bool skips = step % 2 == 1;
    found.Backward(step + 1, skips ? INFINITY : 1);
    found.optimizer().StepUnless(verdict(skips ? 1 : 0), kRate);
    if (skips) continue;
    expected.Backward(step + 1);
    expected.optimizer().Step(kRate);
  }
  EXPECT_TRUE(found.values().equal(expected.values()));
  EXPECT_TRUE(found.optimizer().State()[0].second.equal(
      expected.optimizer().State()[0].second));
}

// By half the rate in both its parts, the update and the decay.
TEST_P(MuonTest, HasARateOfItsOwn) {
  MuonOptions half;
  half.learning_rate_factor = 0.5;
  OneMatrix found(3, 5, half), expected(3, 5, MuonOptions());
  found.Backward(1);
  found.optimizer().Step(kRate);
  expected.Backward(1);
  expected.optimizer().Step(kRate / 2);
  EXPECT_TRUE(found.values().equal(expected.values()));
}

TEST_P(MuonTest, WhatIsNoMatrixIsRefusedByName) {
  const NamedTensors parameters = {
      {"fc.weight", at::zeros({2, 3}, TestDevice()).requires_grad_(true)},
      {"fc.bias", at::zeros({3}, TestDevice()).requires_grad_(true)}};
  const FlatBuffers buffers = MakeFlatBuffers(parameters);
  EXPECT_THAT(MakeOptimizer(MuonOptions(), buffers).status(),
              InvalidArgument("parameter fc.bias is Float [3], but Muon, the "
                              "optimizer of group 0, steps matrices"));
}

TANDEM_ON_DEVICE_TYPES(MuonTest);

TEST(MuonOptionsTest, LearningRatesFollowTheShape) {
  const auto rate = [](MuonAdjustment adjustment, int64_t rows,
                       int64_t columns) {
    return AdjustedLearningRate(0.1, adjustment, {rows, columns});
  };
  EXPECT_DOUBLE_EQ(rate(MuonAdjustment::kOriginal, 9, 1), 0.3);
  EXPECT_DOUBLE_EQ(rate(MuonAdjustment::kOriginal, 1, 9), 0.1);
  EXPECT_DOUBLE_EQ(rate(MuonAdjustment::kMatchRmsAdamW, 4, 100), 0.2);
  EXPECT_DOUBLE_EQ(rate(MuonAdjustment::kMatchRmsAdamW, 100, 4), 0.2);
  EXPECT_DOUBLE_EQ(rate(MuonAdjustment::kSpectralUnclamped, 1, 4), 0.05);
}

TEST(MuonOptionsTest, WrongValuesAreNamed) {
  const auto refusal = [](void (*change)(MuonOptions&)) {
    MuonOptions options;
    change(options);
    return MakeOptimizer(options, {}).status();
  };
  EXPECT_THAT(refusal([](auto& o) { o.momentum = 1; }),
              InvalidArgument("momentum is 1"));
  EXPECT_THAT(refusal([](auto& o) { o.weight_decay = -1; }),
              InvalidArgument("weight_decay is -1"));
  EXPECT_THAT(refusal([](auto& o) { o.eps = 0; }), InvalidArgument("eps"));
  EXPECT_THAT(refusal([](auto& o) { o.ns_steps = 100; }),
              InvalidArgument("ns_steps is 100; it must be from 0 to 99"));
  EXPECT_THAT(refusal([](auto& o) { o.ns_coefficients[1] = NAN; }),
              InvalidArgument("ns_coefficients has nan"));
  EXPECT_THAT(refusal([](auto& o) { o.learning_rate_factor = INFINITY; }),
              InvalidArgument("learning_rate_factor is inf"));
}

}  // namespace
}  // namespace tandem::muon_test
