// Buckets and the streams on which gradients are computed.

#include "parallel/ddp/gradient_streams.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <vector>

#include "core/base/status_macros.h"
#include "core/device/own_stream.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/channel/stream_order.h"
#include "parallel/ddp/reducer.h"

namespace tandem::gradient_streams_test {
namespace {

class GradientStreamsTest : public DeviceTypeTest {};

// Five steps on streams of the user's own. Autograd has a thread for each
// device, which knows nothing of the streams of others: here `b` becomes ready
// on one, and starts the bucket of `a`, whose gradient is still computed on
// another.
absl::Status TrainOnStreams(Communicator& group) {
  std::vector<OwnStream> own;
  std::vector<std::vector<c10::Stream>> streams(2);
  for (int i : {0, 1}) {
    own.push_back(NewStream(TestDevice(i)));
    if (own.back() != nullptr) streams[i].push_back(*own.back());
  }
  NamedTensors parameters;
  FlatBuffers flat;
  std::unique_ptr<Reducer> reducer;
  {
    const c10::MultiStreamGuard first(streams[0]);
    const c10::MultiStreamGuard second(streams[1]);
    for (int i : {1, 0}) {
      parameters.emplace_back(
          i == 1 ? "a" : "b",
          at::ones({16}, TestDevice(i)).requires_grad_(true));
    }
    flat = MakeFlatBuffers(parameters);
    std::vector<FlatBuffer*> buffers;
    for (const auto& each : flat) buffers.push_back(each.get());
    ReducerOptions options;
    options.buckets.limits = {64};
    reducer = std::make_unique<Reducer>(buffers, group, options);
  }
  for (int step = 0; step < 5; ++step) {
    const auto compute = [&](int position, int operations) {
      for (const auto& each : flat) {
        for (size_t i = 0; i < each->slots().size(); ++i) {
          if (each->slots()[i].position == position) {
            each->set_has_gradient(i, true);
          }
        }
      }
      at::Tensor gradient = parameters[position].second.grad();
      gradient.fill_(step + group.rank());
      for (int i = 0; i < operations; ++i) gradient.add_(1);
      reducer->MarkReady(position);
    };
    {
      const c10::MultiStreamGuard guard(streams[1]);
      compute(0, 100);
    }
    {
      const c10::MultiStreamGuard guard(streams[0]);
      compute(1, 0);
    }
    TANDEM_RETURN_IF_ERROR(reducer->Finish());
    for (int position : {0, 1}) {
      EXPECT_TRUE(parameters[position].second.grad().cpu().equal(
          at::full({16}, step + 0.5 + (position == 0 ? 100 : 0))))
          << parameters[position].first << " in step " << step;
    }
    for (const auto& each : flat) each->ZeroGrad();
  }
  return absl::OkStatus();
}

TEST_P(GradientStreamsTest, ABucketOfAnotherDeviceWaitsForItsGradients) {
  ExpectOk(RunDeviceRanks(2, TrainOnStreams));
}

TANDEM_ON_DEVICE_TYPES(GradientStreamsTest);

}  // namespace
}  // namespace tandem::gradient_streams_test
