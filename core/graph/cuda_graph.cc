#include "core/graph/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <glog/logging.h>

#include <optional>

#include "core/base/torch_status.h"
#include "core/device/capture_mark.h"

namespace tandem {
namespace {

class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(c10::Device device) : device_(device) {}
  ~CudaGraph() override {
    if (mark_.has_value()) Abandon();
  }

  absl::Status Begin() override {
    CHECK(!mark_.has_value()) << "the graph is captured already";
    const c10::cuda::CUDAGuard guard(device_);
    const absl::Status begun = CatchTorch(
        [&] {
          stream_ = c10::cuda::getCurrentCUDAStream();
          graph_.emplace();
          graph_->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
        },
        "begin a capture");
    if (begun.ok()) {
      mark_.emplace(device_);
    } else {
      graph_.reset();
    }
    return begun;
  }

  // On the stream that is captured, whichever is the current one by now: on
  // another, CUDAGraph refuses to end it, and LibTorch's allocators would go on
  // giving out memory as in a capture. Where CUDA fails, they have ended
  // theirs.
  absl::Status End() override {
    CHECK(mark_.has_value()) << "no capture has begun";
    mark_.reset();
    const c10::cuda::CUDAStreamGuard guard(*stream_);
    const absl::Status ended =
        CatchTorch([&] { graph_->capture_end(); }, "end a capture");
    if (!ended.ok()) graph_.reset();
    return ended;
  }

  // The stream goes on once its capture has ended, with whatever error.
  void Abandon() override {
    End().IgnoreError();
    graph_.reset();
  }

  absl::Status Replay() override {
    CHECK(graph_.has_value() && !mark_.has_value()) << "nothing is captured";
    const c10::cuda::CUDAGuard guard(device_);
    return CatchTorch([&] { graph_->replay(); }, "replay a graph");
  }

 private:
  const c10::Device device_;
  std::optional<CaptureMark> mark_;  // while it is captured
  std::optional<c10::cuda::CUDAStream> stream_;
  std::optional<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> MakeCudaGraph(c10::Device device) {
  return std::make_unique<CudaGraph>(device);
}

}  // namespace tandem
