// An axis group over a communicator, on each type of device: its collectives in
// closed form, a whole model over it, and how it fails.

#include "parallel/tensor_parallel/axis_communicator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/context/compute_context.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/layer_list.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/tensor_parallel_loss.h"
#include "models/transformer/gpt.h"
#include "tests/core/testing/recorded_flights.h"
#include "tests/models/tensor_parallel_lab.h"

namespace tandem {
namespace {

constexpr char kWhat[] = "activations of h.0";

absl::Status OverRanks(int ranks,
                       const std::function<absl::Status(Communicator&)>& fn) {
  const auto options = [] {
    CommunicatorOptions options;
    options.backend = TestBackend();
    options.timeout = std::chrono::seconds(30);
    return WithTestDevice(options);
  };
  return RunThreadRanks(ranks, fn, options, std::chrono::seconds(30));
}

class AxisCommunicatorTest : public DeviceTypeTest {
 protected:
  // Whole numbers of rank r, on its device.
  static at::Tensor Numbers(const std::vector<int64_t>& sizes, int64_t rank) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return ((at::arange(count) * 7 + rank * 3) % 11 - 5)
        .to(at::kFloat)
        .view(sizes)
        .to(TestDevice());
  }
};

TEST_P(AxisCommunicatorTest, CollectivesAreWhatTheirNamesSay) {
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t size : {0, 1, 5, 1031}) {
      ExpectOk(OverRanks(ranks, [&](Communicator& world) {
        const auto group = MakeAxisGroup("tensor", world);
        EXPECT_EQ(group->axis(), "tensor");
        EXPECT_EQ(group->index(), world.rank());
        EXPECT_EQ(group->degree(), ranks);
        std::vector<at::Tensor> all;
        at::Tensor sum = at::zeros({ranks, size});
        for (int rank = 0; rank < ranks; ++rank) {
          all.push_back(Numbers({size}, rank).cpu());
          sum += Numbers({ranks, size}, rank).cpu();
        }
        const at::Tensor x = Numbers({ranks, size}, world.rank());
        const at::Tensor mine = at::empty({size}, x.options());
        group->ReduceScatterSum(mine, x, kWhat);
        EXPECT_TRUE(mine.cpu().equal(sum[world.rank()]));
        EXPECT_TRUE(x.cpu().equal(Numbers({ranks, size}, world.rank()).cpu()));
        const at::Tensor gathered = at::empty({ranks, size}, x.options());
        group->AllGather(gathered, Numbers({size}, world.rank()), kWhat);
        EXPECT_TRUE(gathered.cpu().equal(at::stack(all)));
        group->AllReduceSum(x, kWhat);
        EXPECT_TRUE(x.cpu().equal(sum));
        return world.Synchronize();
      }));
    }
  }
}

GptOptions SmallGpt() {
  GptOptions options;
  options.layers = 2;
  options.width = 24;
  options.heads = 6;
  options.context = 12;
  options.vocabulary = 31;
  options.ties_lm_head = true;
  options.dropout = 0.2;
  return options;
}

struct Step {
  at::Tensor loss;
  TensorsByName gradients;
};

// On this rank's device.
Step TrainingStep(const c10::Device& device) {
  const SampleScope samples({1, 2, 3});
  const LayerList layers = MakeLayers(*Gpt(SmallGpt()), 5);
  Step step;
  const absl::Status moved = MoveLayers(layers, device);
  EXPECT_TRUE(moved.ok()) << moved;
  const at::Tensor tokens = (at::arange(24) * 11 % 31).view({2, 12}).to(device);
  TensorParallelLossOptions loss;
  loss.classes = 31;
  const at::Tensor value = TensorParallelCrossEntropy(loss)(
                               Forward(layers, tokens), (tokens * 5 + 1) % 31)
                               .loss;
  value.backward();
  step.loss = value.detach().cpu();
  for (const auto& [name, parameter] : NamedParameters(layers)) {
    step.gradients[name] = parameter.grad().cpu();
  }
  return step;
}

// Backward comes to the rows of the first block's product last of all.
TEST_P(AxisCommunicatorTest, AGptOverItIsTheWholeOne) {
  for (const bool sequence_parallel : {false, true}) {
    ExpectOk(OverRanks(2, [&](Communicator& world) {
      Step whole;
      {
        const TensorParallelScope outside(nullptr);
        whole = TrainingStep(TestDevice());
      }
      const TensorParallelScope scope(MakeTensorParallel(
          MakeAxisGroup("tensor", world), sequence_parallel));
      const Step divided = TrainingStep(TestDevice());
      EXPECT_NEAR(divided.loss.item<float>(), whole.loss.item<float>(),
                  64 * 0x1p-23 * whole.loss.item<float>());
      const std::string name = "transformer.h.0.mlp.c_proj.weight";
      const at::Tensor expected =
          whole.gradients.at(name).narrow(0, 48 * world.rank(), 48);
      EXPECT_LE((divided.gradients.at(name) - expected).norm().item<float>(),
                64 * 0x1p-23 * expected.norm().item<float>());
      return world.Synchronize();
    }));
  }
}

TEST_P(AxisCommunicatorTest, ErrorsSayWhatWasToBeSent) {
  const absl::Status status = OverRanks(2, [&](Communicator& world) {
    if (world.rank() == 1) {
      world.Abort(absl::InternalError("rank 1 has had enough"));
      return absl::OkStatus();
    }
    const auto group = MakeAxisGroup("tensor", world);
    const at::Tensor x = at::ones({3}, TestDevice());
    // By a stream it may be a later one that says so.
    for (int i = 0; i < 1000; ++i) {
      group->AllReduceSum(x, kWhat);
      TANDEM_RETURN_IF_ERROR(world.Synchronize());
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(status, Says("rank 1 has had enough", kWhat));
}

TEST_P(AxisCommunicatorTest, TheFlightRecordSaysWhatEachIsFor) {
  const FlightDump dump = RecordedFlights([&] {
    ExpectOk(OverRanks(2, [&](Communicator& world) {
      const auto group = MakeAxisGroup("tensor", world);
      const at::Tensor x = Numbers({2, 3}, world.rank());
      group->AllReduceSum(x, std::string("sums of ") + kWhat);
      group->AllGather(x, Numbers({3}, world.rank()), kWhat);
      group->ReduceScatterSum(Numbers({3}, world.rank()), x, kWhat);
      const absl::Status ended = world.Synchronize();
      if (!ended.ok()) return ended;
      return world.AllReduceSum(x);  // no layer's
    }));
  });
  std::map<std::string, int> noted;
  for (const FlightEntry& each : dump.entries) {
    ++noted[each.operation + ": " + each.what];
  }
  const std::map<std::string, int> expected = {
      {"all-reduce: sums of activations of h.0", 2},
      {"all-gather: activations of h.0", 2},
      {"reduce-scatter: activations of h.0", 2},
      {"all-reduce: ", 2}};
  EXPECT_EQ(noted, expected);
}

TANDEM_ON_DEVICE_TYPES(AxisCommunicatorTest);

}  // namespace
}  // namespace tandem
