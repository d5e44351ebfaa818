#include "parallel/parameter_server/served_slice.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/tensor_stream.h"
#include "core/comm/communicator.h"
#include "core/random/random.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "parallel/optim/gradient_clipping.h"
#include "parallel/optim/make_optimizer.h"
#include "parallel/parameter_server/served_layout.h"
#include "parallel/strategy/gathered_tensors.h"

namespace tandem::served_slice_test {
namespace {

constexpr double kRate = 0.1;

at::Tensor Draw(const std::string& what, at::IntArrayRef sizes) {
  return at::randn(sizes, GeneratorFor(7, what), at::kFloat);
}

const std::vector<std::vector<int64_t>> kShapes = {{13, 7},      {},  {31},
                                                   {3, 2, 5, 5}, {0}, {64}};

std::string NameOf(size_t tensor) { return "t" + std::to_string(tensor); }

std::vector<at::Tensor> DrawAll(const std::string& what) {
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    all.push_back(Draw(what + NameOf(i), kShapes[i]));
  }
  return all;
}

ServedLayout LayoutOf(const std::vector<at::Tensor>& tensors) {
  ServedLayout layout;
  for (size_t i = 0; i < tensors.size(); ++i) {
    layout.trained.push_back(
        {MakeTensorInfo(NameOf(i), tensors[i]), tensors[i].strides().vec(), 0});
  }
  return layout;
}

// All servers of a job, without workers.
struct Servers {
  Servers(int count, const UpdateOptions& options)
      : initial(DrawAll("initial")),
        layout(LayoutOf(initial)),
        slices(CutIntoSlices(layout.trained, count)) {
    for (const Slice& slice : slices) {
      served.push_back(*ServedSlice::Create(layout, slice, options));
      const at::Tensor bytes = at::zeros({slice.bytes}, at::kByte);
      Pack(initial, slice, bytes);
      served.back()->SetValues(bytes);
    }
  }

  at::Tensor MessageOf(size_t server,
                       const std::vector<at::Tensor>& gradients) {
    const at::Tensor bytes =
        at::zeros({GradientMessage::BytesFor(slices[server])}, at::kByte);
    GradientMessage(slices[server], bytes).Put(gradients);
    return bytes;
  }

  void Apply(const std::vector<std::vector<at::Tensor>>& pushes) {
    for (size_t s = 0; s < served.size(); ++s) {
      std::vector<at::Tensor> messages;
      for (const auto& push : pushes) messages.push_back(MessageOf(s, push));
      const absl::Status applied = served[s]->Apply(messages, kRate);
      ASSERT_TRUE(applied.ok()) << applied;
    }
  }

  std::vector<at::Tensor> Values() const {
    std::vector<at::Tensor> values;
    for (const at::Tensor& each : initial) {
      values.push_back(at::zeros_like(each));
    }
    for (size_t s = 0; s < served.size(); ++s) {
      Unpack(served[s]->Values(), slices[s], values);
    }
    return values;
  }

  std::vector<at::Tensor> initial;
  ServedLayout layout;
  std::vector<Slice> slices;
  std::vector<std::unique_ptr<ServedSlice>> served;
};

// The same by an optimizer over the whole model in flat buffers.
struct Reference {
  explicit Reference(const UpdateOptions& options) {
    const std::vector<at::Tensor> initial = DrawAll("initial");
    for (size_t i = 0; i < initial.size(); ++i) {
      parameters.emplace_back(NameOf(i),
                              initial[i].clone().requires_grad_(true));
    }
    buffers = MakeFlatBuffers(parameters);
    optimizer = *MakeOptimizer(options.optimizer, buffers);
  }

  void Step(const std::vector<at::Tensor>& gradients, double clip_norm = 0) {
    at::NoGradGuard no_grad;
    buffers[0]->ZeroGrad();
    for (size_t i = 0; i < buffers[0]->slots().size(); ++i) {
      const FlatSlot& slot = buffers[0]->slots()[i];
      const at::Tensor& gradient =
          gradients[static_cast<size_t>(slot.position)];
      if (!gradient.defined()) continue;
      buffers[0]->set_has_gradient(i, true);
      slot.parameter.grad().copy_(gradient);
    }
    if (clip_norm > 0) ClipGradientNorm(buffers, clip_norm);
    optimizer->Step(kRate);
  }

  NamedTensors parameters;
  FlatBuffers buffers;
  std::unique_ptr<Optimizer> optimizer;
};

UpdateOptions With(OptimizerOptions optimizer) {
  UpdateOptions options;
  options.optimizer = optimizer;
  return options;
}

void ExpectSame(const std::vector<at::Tensor>& found,
                const NamedTensors& expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].equal(expected[i].second)) << NameOf(i);
  }
}

// What servers' ranks have, whole, on the first one.
absl::Status Stream(Servers& servers, CollectedTensors& whole) {
  const int ranks = static_cast<int>(servers.served.size());
  return RunThreadRanks(ranks, [&](Communicator& group) -> absl::Status {
    ServedSlice& mine = *servers.served[static_cast<size_t>(group.rank())];
    NamedTensors pieces = mine.Pieces();
    for (auto& [name, tensor] : mine.OptimizerPieces()) {
      pieces.emplace_back("optimizer." + name, tensor);
    }
    CollectedTensors order;
    const absl::Status status =
        StreamToRank0(StateOfSlices(pieces, servers.layout), group,
                      group.rank() == 0 ? whole : order);
    if (!status.ok()) group.Abort(status);
    return status;
  });
}

class ServedSliceTest : public testing::TestWithParam<int> {};

TEST_P(ServedSliceTest, StepsAsAWholeModelDoes) {
  for (const UpdateOptions& options :
       {With(SgdOptions{0.9, 0, 0.01, true}), With(AdamWOptions{}),
        With(SgdOptions{})}) {
    Servers servers(GetParam(), options);
    Reference reference(options);
    for (int step = 0; step < 3; ++step) {
      std::vector<at::Tensor> gradients =
          DrawAll("gradient " + std::to_string(step));
      // One that has none in the first steps.
      if (step < 2) gradients[2].reset();
      servers.Apply({gradients});
      reference.Step(gradients);
      ExpectSame(servers.Values(), reference.parameters);
    }
  }
}

TEST_P(ServedSliceTest, AveragesInTheOrderGiven) {
  Servers servers(GetParam(), With(SgdOptions{0.9}));
  Reference reference(With(SgdOptions{0.9}));
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<at::Tensor>> pushes;
    std::vector<at::Tensor> mean(kShapes.size());
    for (int w = 0; w < 3; ++w) {
      pushes.push_back(
          DrawAll("push " + std::to_string(step) + " of " + std::to_string(w)));
      // What nobody has a gradient of; what one alone has one of.
      pushes.back()[0].reset();
      if (w != 1) pushes.back()[3].reset();
      for (size_t i = 0; i < mean.size(); ++i) {
        const at::Tensor& gradient = pushes.back()[i];
        if (!gradient.defined()) continue;
        const at::Tensor part = gradient * (1.0 / 3);
        mean[i] = mean[i].defined() ? mean[i] + part : part;
      }
    }
    servers.Apply(pushes);
    reference.Step(mean);
    ExpectSame(servers.Values(), reference.parameters);
  }
}

TEST_P(ServedSliceTest, ItsStateIsStreamedWholeAndLoaded) {
  const UpdateOptions options = With(AdamWOptions{});
  Servers servers(GetParam(), options);
  Reference reference(options);
  servers.Apply({DrawAll("gradient")});
  reference.Step(DrawAll("gradient"));
  CollectedTensors whole;
  ExpectOk(Stream(servers, whole));
  NamedTensors model, state;
  for (const auto& [name, tensor] : whole.tensors) {
    if (name[0] == 't') {
      model.emplace_back(name, tensor.clone());
    } else {
      state.emplace_back(name.substr(10), tensor.clone());
    }
  }
  const NamedTensors expected = reference.optimizer->State();
  ASSERT_EQ(state.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    for (const auto& [its_name, found] : state) {
      if (its_name == name) {
        EXPECT_TRUE(found.equal(tensor)) << name;
        EXPECT_EQ(found.sizes(), tensor.sizes()) << name;
      }
    }
  }
  // Into other servers, of another number.
  Servers others(GetParam() % 3 + 1, options);
  for (const auto& each : others.served) {
    ASSERT_TRUE(each->LoadValues(model).ok());
    const absl::Status loaded = each->LoadOptimizerState(state);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  others.Apply({DrawAll("another gradient")});
  reference.Step(DrawAll("another gradient"));
  ExpectSame(others.Values(), reference.parameters);
}

INSTANTIATE_TEST_SUITE_P(Servers, ServedSliceTest,
                         testing::Values(1, 2, 3, 5, 7));

TEST(ServedSliceErrorsTest, ClipsTheNormOfAllThatItHas) {
  UpdateOptions options = With(SgdOptions{0.9});
  options.clip_norm = 0.5;
  Servers servers(1, options);
  Reference reference(options);
  servers.Apply({DrawAll("gradient")});
  reference.Step(DrawAll("gradient"), options.clip_norm);
  ExpectSame(servers.Values(), reference.parameters);
}

TEST(ServedSliceErrorsTest, StateThatDoesNotFitIsRefused) {
  Servers servers(2, With(SgdOptions{0.9}));
  ServedSlice& first = *servers.served[0];
  const absl::Status shape =
      first.CheckOptimizerState({{"t0.momentum_buffer", at::zeros({7, 13})}});
  EXPECT_THAT(shape, Says("t0.momentum_buffer: expected Float [13, 7], "
                          "got Float [7, 13]"));
  EXPECT_FALSE(
      first.CheckOptimizerState({{"unknown.momentum_buffer", at::zeros({1})}})
          .ok());
  // The other server's.
  EXPECT_TRUE(
      first.CheckOptimizerState({{"t5.momentum_buffer", at::zeros({64})}})
          .ok());
}

TEST(ServedSliceErrorsTest, PiecesThatAreMissingAreNoticed) {
  Servers servers(5, With(SgdOptions{}));
  CollectedTensors whole;
  servers.served.erase(servers.served.begin() + 1, servers.served.end() - 1);
  const absl::Status status = Stream(servers, whole);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
}

}  // namespace
}  // namespace tandem::served_slice_test
