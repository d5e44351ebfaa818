#include "parallel/optim/flat_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/precision/low_precision_copy.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"

namespace tandem::flat_buffer_test {
namespace {

at::Tensor Leaf(const at::Tensor& values) {
  return values.to(TestDevice()).clone().requires_grad_(true);
}

class FlatBufferTest : public DeviceTypeTest {};

TEST_P(FlatBufferTest, ParametersBecomeViewsAndKeepTheirValues) {
  const at::Tensor a = Leaf(at::arange(6.).view({2, 3}));
  const at::Tensor b = Leaf(at::arange(17.));
  const at::Tensor scalar = Leaf(at::scalar_tensor(3.));
  const FlatBuffers buffers =
      MakeFlatBuffers({{"a", a}, {"b", b}, {"scalar", scalar}});
  ASSERT_EQ(buffers.size(), 1u);
  const FlatBuffer& flat = *buffers[0];
  ASSERT_EQ(flat.slots().size(), 3u);
  EXPECT_EQ(flat.slots()[0].name, "scalar");  // the last is the first
  EXPECT_EQ(flat.slots()[0].position, 2);
  EXPECT_EQ(flat.slots()[1].name, "b");
  EXPECT_EQ(flat.slots()[1].offset, 16);
  EXPECT_EQ(flat.slots()[1].numel, 17);
  EXPECT_EQ(flat.slots()[2].offset, 48);
  EXPECT_EQ(flat.values().numel(), 64);
  EXPECT_TRUE(a.cpu().equal(at::arange(6.).view({2, 3})));
  EXPECT_TRUE(b.cpu().equal(at::arange(17.)));
  EXPECT_TRUE(scalar.cpu().equal(at::scalar_tensor(3.)));
  flat.values().fill_(7);
  EXPECT_EQ(a.sum().item<float>(), 42);
  EXPECT_TRUE(flat.CheckViews().ok());
}

TEST_P(FlatBufferTest, EveryParameterBeginsOn64Bytes) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    NamedTensors parameters;
    for (int64_t size : {1, 2, 3, 0, 7, 16, 17, 64}) {
      parameters.emplace_back(
          std::to_string(size),
          at::ones({size}, at::device(TestDevice()).dtype(dtype))
              .requires_grad_(true));
    }
    const FlatBuffers buffers = MakeFlatBuffers(parameters);
    ASSERT_EQ(buffers.size(), 1u);
    for (const auto& [name, tensor] : parameters) {
      if (tensor.numel() == 0) continue;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u);
      tensor.sum().backward();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.grad().data_ptr()) % 64, 0u);
    }
    EXPECT_EQ(buffers[0]->values().nbytes() % 64, 0u);
    EXPECT_EQ(buffers[0]->values().sum().item<float>(), 110);  // padding: 0
  }
}

TEST_P(FlatBufferTest, SharedOnceFrozenNotAndDtypesApart) {
  const at::Tensor tied = Leaf(at::ones({4}));
  const at::Tensor frozen = at::ones({4});
  const at::Tensor wide = Leaf(at::ones({4}, at::kDouble));
  const FlatBuffers buffers = MakeFlatBuffers(
      {{"wte", tied}, {"frozen", frozen}, {"wide", wide}, {"head", tied}});
  ASSERT_EQ(buffers.size(), 2u);
  ASSERT_EQ(buffers[0]->slots().size(), 1u);
  EXPECT_EQ(buffers[0]->slots()[0].name, "wte");
  EXPECT_EQ(buffers[1]->slots()[0].name, "wide");
  EXPECT_EQ(buffers[1]->slots()[0].position, 2);
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_TRUE(MakeFlatBuffers({{"frozen", frozen}}).empty());
}

TEST_P(FlatBufferTest, KeepsChannelsLast) {
  const at::Tensor plain = at::randn({8, 3, 3, 3});
  const at::Tensor weight =
      Leaf(plain.contiguous(at::MemoryFormat::ChannelsLast));
  const FlatBuffers buffers = MakeFlatBuffers({{"weight", weight}});
  EXPECT_TRUE(weight.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(weight.cpu().equal(plain));
  at::conv2d(at::randn({2, 3, 5, 5}).to(TestDevice()), weight).sum().backward();
  EXPECT_EQ(weight.grad().strides(), weight.strides());
  EXPECT_TRUE(buffers[0]->CheckViews().ok());
}

TEST_P(FlatBufferTest, WhatOverlapsItselfBecomesContiguous) {
  const at::Tensor rows =
      at::arange(3., TestDevice()).expand({4, 3}).detach().requires_grad_(true);
  const FlatBuffers buffers = MakeFlatBuffers({{"rows", rows}});
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_TRUE(rows.cpu().equal(at::arange(3.).expand({4, 3})));
}

TEST_P(FlatBufferTest, BackwardAddsToTheBuffer) {
  const at::Tensor a = Leaf(at::arange(3.));
  const at::Tensor b = Leaf(at::ones({2}));
  const FlatBuffers buffers = MakeFlatBuffers({{"a", a}, {"b", b}});
  FlatBuffer& flat = *buffers[0];
  a.mul(2).sum().add(b.mul(3).sum()).backward();
  a.sum().backward();
  EXPECT_TRUE(flat.CheckViews().ok());
  const at::Tensor grads = flat.grads();
  EXPECT_TRUE(grads.narrow(0, 16, 3).cpu().equal(at::full({3}, 3.)));
  EXPECT_TRUE(grads.narrow(0, 0, 2).cpu().equal(at::full({2}, 3.)));
  flat.ZeroGrad();
  EXPECT_FALSE(a.grad().defined());
  a.sum().backward();
  EXPECT_TRUE(grads.narrow(0, 16, 3).cpu().equal(at::full({3}, 1.)));
}

// Backward hands over tensors of its own; they end up in the buffer.
TEST_P(FlatBufferTest, GathersDenseAndSparseGradients) {
  const at::Tensor table = Leaf(at::ones({4, 2}));
  const FlatBuffers buffers = MakeFlatBuffers({{"table", table}});
  const at::Tensor rows = at::arange(2, TestDevice());
  for (const bool sparse : {false, true}) {
    if (sparse && TestDevice().is_privateuseone()) continue;  // dense alone
    buffers[0]->ZeroGrad();
    at::embedding(table, rows, /*padding_idx=*/-1,
                  /*scale_grad_by_freq=*/false, sparse)
        .sum()
        .backward();
    EXPECT_TRUE(buffers[0]->CheckViews().ok());
    EXPECT_EQ(table.grad().sum().item<float>(), 4) << sparse;
    EXPECT_EQ(table.grad()[0][0].item<float>(), 1) << sparse;
    EXPECT_FALSE(table.grad().is_sparse());
  }
}

TEST_P(FlatBufferTest, TellsOfEachGradient) {
  const at::Tensor a = Leaf(at::ones({3}));
  const at::Tensor b = Leaf(at::ones({3}));
  const FlatBuffers buffers = MakeFlatBuffers({{"a", a}, {"b", b}});
  std::string told;
  buffers[0]->set_on_gradient([&](const FlatSlot& slot) {
    EXPECT_TRUE(buffers[0]->CheckViews().ok());
    told += slot.name;
  });
  a.mul(b).sum().backward();
  a.sum().backward();
  EXPECT_EQ(told.size(), 3u) << told;
  EXPECT_EQ(told.back(), 'a');
}

TEST_P(FlatBufferTest, GroupsStandApartAndGradientsLieWhereTold) {
  const at::Tensor a = Leaf(at::ones({3}));
  const at::Tensor b = Leaf(at::ones({3}));
  const at::Tensor c = Leaf(at::ones({3}));
  FlatBufferOptions options;
  ParameterTraits five, seven;
  five.optimizer_group = 5;
  seven.optimizer_group = 7;
  options.traits = {five, seven, five};
  std::vector<at::Tensor> made;
  options.allocate = [&](int64_t numel, const at::TensorOptions& like) {
    made.push_back(at::zeros({numel}, like));
    return made.back();
  };
  const FlatBuffers buffers =
      MakeFlatBuffers({{"a", a}, {"b", b}, {"c", c}}, options);
  ASSERT_EQ(buffers.size(), 2u);
  EXPECT_EQ(buffers[0]->group(), 5);
  EXPECT_EQ(buffers[0]->slots().size(), 2u);
  EXPECT_EQ(buffers[1]->group(), 7);
  ASSERT_EQ(made.size(), 2u);
  b.sum().backward();
  EXPECT_TRUE(b.grad().is_alias_of(made[1]));
}

TEST_P(FlatBufferTest, ParametersOfOneBufferHaveOneSetOfTraits) {
  const at::Tensor a = Leaf(at::ones({3}));
  const at::Tensor b = Leaf(at::ones({3}));
  const at::Tensor c = Leaf(at::ones({3}));
  const at::Tensor d = Leaf(at::ones({3}));
  ParameterTraits own, sharded;
  own.reduce_axes.clear();
  sharded.shard = ParameterShard{"tensor", 1};
  FlatBufferOptions options;
  options.traits = {ParameterTraits(), own, sharded, std::nullopt};
  const FlatBuffers buffers =
      MakeFlatBuffers({{"a", a}, {"b", b}, {"c", c}, {"d", d}}, options);
  ASSERT_EQ(buffers.size(), 3u);  // d is left out
  EXPECT_EQ(buffers[0]->traits(), ParameterTraits());
  EXPECT_EQ(buffers[1]->traits(), own);
  EXPECT_EQ(buffers[2]->traits(), sharded);
  for (const auto& buffer : buffers) EXPECT_EQ(buffer->slots().size(), 1u);
}

TEST_P(FlatBufferTest, ReorderMovesValuesGradientsAndState) {
  const at::Tensor a = Leaf(at::arange(17.));
  const at::Tensor b = Leaf(at::full({2, 2}, 5.));
  const at::Tensor c = Leaf(at::full({3}, 7.));
  const FlatBuffers buffers = MakeFlatBuffers({{"c", c}, {"b", b}, {"a", a}});
  FlatBuffer& flat = *buffers[0];  // a, b, c
  const at::Tensor state = flat.AddState();
  flat.View(state, flat.slots()[1]).fill_(9);
  a.mul(a).sum().backward();
  flat.Reorder({2, 0, 1});
  EXPECT_EQ(flat.slots()[0].name, "c");
  EXPECT_EQ(flat.slots()[1].name, "a");
  EXPECT_EQ(flat.slots()[1].id, 0u);
  EXPECT_EQ(flat.slots()[1].offset, 16);
  EXPECT_TRUE(flat.CheckViews().ok());
  EXPECT_TRUE(a.cpu().equal(at::arange(17.)));
  EXPECT_TRUE(b.cpu().equal(at::full({2, 2}, 5.)));
  EXPECT_TRUE(c.cpu().equal(at::full({3}, 7.)));
  EXPECT_TRUE(a.grad().cpu().equal(at::arange(17.).mul(2)));
  EXPECT_FALSE(flat.has_gradient(0));
  EXPECT_TRUE(flat.has_gradient(1));
  EXPECT_EQ(flat.View(state, flat.slots()[2]).sum().item<float>(), 36);
  EXPECT_EQ(state.sum().item<float>(), 36);
  // And backward goes on in the new places.
  c.sum().backward();
  EXPECT_TRUE(flat.grads().narrow(0, 0, 3).cpu().equal(at::ones({3})));
}

// What a graph has kept of a parameter lies where another's values are now.
TEST_P(FlatBufferTest, ReorderEndsTheGraphsThatThereAre) {
  const at::Tensor a = Leaf(at::full({16, 16}, 2.));
  const at::Tensor b = Leaf(at::full({16, 16}, 3.));
  const at::Tensor x = Leaf(at::ones({4, 16}));
  const FlatBuffers buffers = MakeFlatBuffers({{"b", b}, {"a", a}});
  const at::Tensor before = x.matmul(a.t());
  buffers[0]->Reorder({1, 0});
  const at::Tensor after = x.matmul(a.t());
  EXPECT_THROW(before.sum().backward(), c10::Error);
  after.sum().backward();
  EXPECT_TRUE(x.grad().cpu().equal(at::full({4, 16}, 32.)));
}

TEST_P(FlatBufferTest, KnowsWhichParametersGotAGradient) {
  const at::Tensor a = Leaf(at::ones({3}));
  const at::Tensor b = Leaf(at::ones({3}));
  const FlatBuffers buffers = MakeFlatBuffers({{"b", b}, {"a", a}});
  FlatBuffer& flat = *buffers[0];  // a, b
  EXPECT_FALSE(flat.has_gradient(0));
  a.sum().backward();
  EXPECT_TRUE(flat.has_gradient(0));
  EXPECT_FALSE(flat.has_gradient(1));
  flat.ZeroGrad();
  EXPECT_FALSE(flat.has_gradient(0));
  // A gradient of zeros is one all the same.
  b.mul(0).sum().backward();
  EXPECT_FALSE(flat.has_gradient(0));
  EXPECT_TRUE(flat.has_gradient(1));
}

TEST_P(FlatBufferTest, ReplacedGradientIsNamed) {
  const at::Tensor a = Leaf(at::ones({3}));
  at::Tensor b = Leaf(at::ones({3}));
  const FlatBuffers buffers = MakeFlatBuffers({{"a", a}, {"b", b}});
  EXPECT_TRUE(buffers[0]->CheckViews().ok());
  b.mutable_grad() = at::zeros({3}, TestDevice());
  const absl::Status status = buffers[0]->CheckViews();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                               "gradient of parameter b "));
}

TEST_P(FlatBufferTest, ReplacedParameterIsNamed) {
  const at::Tensor a = Leaf(at::ones({3}));
  const at::Tensor b = Leaf(at::ones({2, 2}));
  const FlatBuffers buffers = MakeFlatBuffers({{"a", a}, {"b", b}});
  EXPECT_TRUE(buffers[0]->CheckParameters().ok());
  b.set_data(b.to(at::kHalf));  // as module->to(dtype) does
  for (const absl::Status& status :
       {buffers[0]->CheckParameters(), buffers[0]->CheckViews()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 "parameter b was replaced"));
    EXPECT_THAT(status, Says("Half [2, 2]"));
  }
}

// What is kept of a parameter for mixed precision is not kept for good.
TEST_P(FlatBufferTest, TakesLowPrecisionCopiesWithIt) {
  const at::Tensor a = Leaf(at::arange(6.));
  FlatBuffers buffers = MakeFlatBuffers({{"a", a}});
  const at::NoGradGuard no_grad;
  using Weak =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  const Weak copy(LowPrecisionCopy(a, at::kBFloat16).getIntrusivePtr());
  EXPECT_FALSE(copy.expired());
  buffers.clear();
  // A device that computes on its own lets go of it when its work is done.
  for (int i = 0; i < 1000 && !copy.expired(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(copy.expired());
}

TEST_P(FlatBufferTest, ParametersOutliveIt) {
  const at::Tensor a = Leaf(at::ones({3}));
  MakeFlatBuffers({{"a", a}});
  a.sum().backward();
  EXPECT_TRUE(a.grad().cpu().equal(at::ones({3})));
}

TANDEM_ON_DEVICE_TYPES(FlatBufferTest);

}  // namespace
}  // namespace tandem::flat_buffer_test
