// Captures of streams.

#include <c10/util/Exception.h>

#include <memory>
#include <utility>

#include "core/sim/streams/streams.h"

namespace tandem {
namespace sim {

std::shared_ptr<StreamCapture> BeginCapture(c10::Stream stream) {
  TORCH_CHECK(IsAsynchronous(),
              "simulated devices without streams cannot capture: make them "
              "asynchronous");
  TORCH_CHECK(stream.id() != 0,
              "a device's default stream cannot be captured: take another");
  TORCH_CHECK(!IsCaptured(stream), "the stream is captured already");
  auto capture = std::make_shared<StreamCapture>(stream);
  Register(capture);
  return capture;
}

void EndCapture(const std::shared_ptr<StreamCapture>& capture) {
  Unregister(capture);
  capture->End();
}

void DropCapture(const std::shared_ptr<StreamCapture>& capture) {
  Unregister(capture);
}

void Replay(const StreamCapture& capture, c10::Stream stream) {
  capture.Replay(stream, [](c10::Stream on, StreamCapture::Work work) {
    Push(on, std::move(work));
  });
}

bool IsCaptured(c10::Stream stream) { return CaptureOf(stream) != nullptr; }

}  // namespace sim
}  // namespace tandem
