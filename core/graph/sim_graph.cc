#include "core/graph/sim_graph.h"

#include <glog/logging.h>

#include <optional>
#include <utility>

#include "core/base/torch_status.h"
#include "core/device/capture_mark.h"
#include "core/sim/streams/stream_capture.h"
#include "core/sim/streams/streams.h"

namespace tandem {
namespace {

class SimGraph : public DeviceGraph {
 public:
  explicit SimGraph(c10::Device device) : device_(device) {}
  ~SimGraph() override {
    if (mark_.has_value()) Abandon();
  }

  absl::Status Begin() override {
    CHECK(!mark_.has_value()) << "the graph is captured already";
    const absl::Status begun = CatchTorch(
        [&] { capture_ = sim::BeginCapture(Current()); }, "begin a capture");
    if (begun.ok()) mark_.emplace(device_);
    return begun;
  }

  absl::Status End() override {
    CHECK(mark_.has_value()) << "no capture has begun";
    mark_.reset();
    const absl::Status ended =
        CatchTorch([&] { sim::EndCapture(capture_); }, "end a capture");
    if (!ended.ok()) capture_ = nullptr;
    return ended;
  }

  void Abandon() override {
    mark_.reset();
    sim::DropCapture(std::exchange(capture_, nullptr));
  }

  absl::Status Replay() override {
    CHECK(capture_ != nullptr && !mark_.has_value()) << "nothing is captured";
    return CatchTorch([&] { sim::Replay(*capture_, Current()); },
                      "replay a graph");
  }

 private:
  c10::Stream Current() const { return sim::CurrentStream(device_.index()); }

  const c10::Device device_;
  std::optional<CaptureMark> mark_;  // while it is captured
  std::shared_ptr<sim::StreamCapture> capture_;
};

}  // namespace

std::unique_ptr<DeviceGraph> MakeSimGraph(c10::Device device) {
  return std::make_unique<SimGraph>(device);
}

}  // namespace tandem
