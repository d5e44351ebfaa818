// Running statistics recorded by microbatch (core/model/statistics_records.h)
// against the plain layers, fed with the same microbatches one after the other:
// the same bits.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <memory>
#include <string>
#include <vector>

#include "core/context/compute_context.h"
#include "core/model/layer_list.h"
#include "core/model/reproducible.h"
#include "core/model/statistics_records.h"
#include "core/model/weight_gradient_sink.h"
#include "core/testing/device_types.h"
#include "models/layers/basic_layers.h"
#include "models/layers/batch_norm_2d.h"
#include "models/resnet.h"

namespace tandem::batch_norm_2d_records_test {
namespace {

using ::testing::HasSubstr;

// One channel, a prime number of them, and blocks with norms inside.
LayerSpecs Specs() {
  return {BatchNorm2dLayer("bn0", 1), Conv2dLayer("conv", {1, 7, 3}),
          BatchNorm2dLayer("bn1", 7), BasicBlock("block1", 7, 11, 2),
          BasicBlock("block2", 11, 11, 1)};
}

// Microbatches of uneven sizes, far from 0, each different.
std::vector<at::Tensor> Microbatches(int count) {
  std::vector<at::Tensor> microbatches;
  for (int i = 0; i < count; ++i) {
    microbatches.push_back(at::randn({2 + i % 3, 1, 9, 9}) * (i + 1) + 10 * i);
  }
  return microbatches;
}

// One replica of the model on `device`, with `momentum` in its first layer.
struct Replica {
  explicit Replica(const c10::Device& device = c10::kCPU)
      : layers(MakeLayers(Specs(), /*seed=*/3)) {
    for (const Layer& layer : layers) layer.module->to(device);
    dynamic_cast<BatchNorm2d&>(*layers[0].module).options.momentum(0.37);
    records = std::make_unique<StatisticsRecords>(layers);
  }

  at::Tensor Forward(const at::Tensor& x, int index, int count,
                     bool is_recomputed = false) {
    Microbatch microbatch = {index, count, is_recomputed};
    microbatch.records = records.get();
    const MicrobatchScope scope(microbatch);
    return tandem::Forward(layers, x);
  }

  LayerList layers;
  std::unique_ptr<StatisticsRecords> records;
};

void ExpectSameBuffers(const LayerList& layers, const LayerList& expected) {
  const NamedTensors buffers = NamedBuffers(layers);
  const NamedTensors others = NamedBuffers(expected);
  ASSERT_EQ(buffers.size(), 21u);  // three each of seven norms
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_TRUE(buffers[i].second.cpu().equal(others[i].second.cpu()))
        << buffers[i].first << ": " << buffers[i].second << " instead of "
        << others[i].second;
  }
}

// Several steps, so that rounding errors have something to add up to. Replica r
// of `replicas` computes its share of the microbatches, the last one first.
void ExpectPlainBits(int replicas, int microbatches) {
  const Replica plain;
  std::vector<Replica> jobs(replicas);
  const int share = microbatches / replicas;
  for (int step = 0; step < 3; ++step) {
    const std::vector<at::Tensor> inputs = Microbatches(microbatches);
    std::vector<at::Tensor> outputs;
    for (const at::Tensor& x : inputs) {
      outputs.push_back(Forward(plain.layers, x));
    }
    std::vector<at::Tensor> all;
    for (int r = 0; r < replicas; ++r) {
      jobs[r].records->Begin(share);
      for (int i = share; i-- > 0;) {
        const int global = r * share + i;
        EXPECT_TRUE(
            jobs[r].Forward(inputs[global], i, share).equal(outputs[global]));
      }
      const absl::StatusOr<at::Tensor> mine = jobs[r].records->Records();
      ASSERT_TRUE(mine.ok()) << mine.status();
      EXPECT_EQ(mine->sizes().vec(), (std::vector<int64_t>{share, 126}));
      all.push_back(*mine);
    }
    for (const Replica& each : jobs) {
      each.records->Apply(at::cat(all));
      ExpectSameBuffers(each.layers, plain.layers);
    }
  }
}

TEST(BatchNorm2dRecords, AreThePlainLayersBitsOnAnyNumberOfReplicas) {
  ExpectPlainBits(/*replicas=*/1, /*microbatches=*/1);
  ExpectPlainBits(1, 7);
  ExpectPlainBits(2, 8);
  ExpectPlainBits(3, 6);
  ExpectPlainBits(7, 7);
}

TEST(BatchNorm2dRecords, WrongOrderIsSeen) {
  const Replica one, other;
  for (const Replica* each : {&one, &other}) each->records->Begin(2);
  const std::vector<at::Tensor> inputs = Microbatches(2);
  Replica replica;
  replica.records->Begin(2);
  for (int i = 0; i < 2; ++i) replica.Forward(inputs[i], i, 2);
  const at::Tensor records = *replica.records->Records();
  one.records->Apply(records);
  other.records->Apply(records.flip(0));
  EXPECT_FALSE(NamedBuffers(one.layers)[0].second.equal(
      NamedBuffers(other.layers)[0].second));
}

TEST(BatchNorm2dRecords, ARecomputedMicrobatchRecordsNothing) {
  Replica replica;
  const std::vector<at::Tensor> inputs = Microbatches(2);
  replica.records->Begin(2);
  replica.Forward(inputs[0], 0, 2, /*is_recomputed=*/true);
  EXPECT_FALSE(replica.records->Records().ok());
  for (int i = 0; i < 2; ++i) {
    at::Tensor first;
    {
      const at::NoGradGuard no_grad;
      first = replica.Forward(inputs[i], i, 2);
    }
    const at::Tensor again = replica.Forward(inputs[i], i, 2, true);
    EXPECT_TRUE(again.equal(first));
    again.sum().backward();
  }
  const Replica plain;
  for (const at::Tensor& x : inputs) Forward(plain.layers, x);
  replica.records->Apply(*replica.records->Records());
  ExpectSameBuffers(replica.layers, plain.layers);
}

// Gradients of weights are left for later in another way.
TEST(BatchNorm2dRecords, UnderASinkTheyAreTheSame) {
  Replica joint, split;
  const std::vector<at::Tensor> inputs = Microbatches(2);
  const auto sink = std::make_shared<WeightGradientSink>();
  for (Replica* each : {&joint, &split}) {
    const WeightGradientSink::Scope scope(each == &split ? sink : nullptr);
    each->records->Begin(2);
    for (int i = 0; i < 2; ++i) each->Forward(inputs[i], i, 2).sum().backward();
  }
  EXPECT_GT(sink->size(), 0u);
  EXPECT_TRUE(joint.records->Records()->equal(*split.records->Records()));
}

TEST(BatchNorm2dRecords, GradientsAreThoseWithoutRecords) {
  Replica recorded;
  const Replica plain;
  const std::vector<at::Tensor> inputs = Microbatches(2);
  recorded.records->Begin(2);
  std::vector<at::Tensor> outputs;
  for (int i = 0; i < 2; ++i) {
    outputs.push_back(recorded.Forward(inputs[i], i, 2));
  }
  for (int i = 0; i < 2; ++i) {
    outputs[i].square().sum().backward();
    Forward(plain.layers, inputs[i]).square().sum().backward();
  }
  const NamedTensors parameters = NamedParameters(recorded.layers);
  const NamedTensors expected = NamedParameters(plain.layers);
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(parameters[i].second.grad().equal(expected[i].second.grad()))
        << parameters[i].first;
  }
}

TEST(BatchNorm2dRecords, DeferralIsRefused) {
  BatchNorm2d norm(3);
  StatisticsRecords records((LayerList()));
  Microbatch microbatch;
  microbatch.defers_statistics = true;
  microbatch.records = &records;
  const MicrobatchScope scope(microbatch);
  try {
    norm.forward(at::ones({2, 3, 2, 2}));
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("not both"));
  }
}

TEST(BatchNorm2dRecords, OurLayersAreReproducible) {
  EXPECT_TRUE(CheckReproducible(Replica().layers).ok());
}

class BatchNorm2dRecordsOnDevices : public DeviceTypeTest {};

TEST_P(BatchNorm2dRecordsOnDevices, AreTakenInFromAnyDevice) {
  Replica host, device(TestDevice());
  const std::vector<at::Tensor> inputs = Microbatches(3);
  for (Replica* each : {&host, &device}) {
    each->records->Begin(3);
    const bool moves = each == &device;
    for (int i = 0; i < 3; ++i) {
      each->Forward(moves ? inputs[i].to(TestDevice()) : inputs[i], i, 3);
    }
  }
  const at::Tensor records = *device.records->Records();
  EXPECT_TRUE(
      at::allclose(records.cpu(), *host.records->Records(), 1e-4, 1e-5));
  host.records->Apply(records);  // from wherever they are
  device.records->Apply(records.cpu());
  ExpectSameBuffers(device.layers, host.layers);
}

TANDEM_ON_DEVICE_TYPES(BatchNorm2dRecordsOnDevices);

}  // namespace
}  // namespace tandem::batch_norm_2d_records_test
