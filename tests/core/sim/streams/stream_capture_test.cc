// Captures of simulated streams: nothing runs before a replay, replays run it
// all on the same memory, and what CUDA's captures forbid is an error.

#include "core/sim/streams/stream_capture.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/core/sim/asynchronous.h"
#include "tests/core/sim/thrown.h"

namespace tandem::stream_capture_test {
namespace {

using testing::HasSubstr;

class StreamCaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    EnableAsynchronousSim();
    x_ = at::zeros({32}, at::device(SimDevice(0)));
    y_ = at::zeros_like(x_);
    // Shapes become known.
    Work();
    at::add(x_, x_).mul_(2.0).add_(1);
    x_.zero_();
    y_.zero_();
    sim::SynchroniseAll();
  }
  void TearDown() override { sim::SynchroniseAll(); }

  // x counts, and y is what x was.
  void Work() {
    y_.copy_(x_);
    x_ = x_.add_(1);
  }

  float X() { return x_[0].item<float>(); }
  float Y() { return y_[0].item<float>(); }

  at::Tensor x_, y_;
  const c10::Stream stream_ = sim::PooledStream(0);
};

c10::Event NewEvent() { return c10::Event(c10::DeviceType::PrivateUse1); }

TEST_F(StreamCaptureTest, WorkRunsInReplaysAlone) {
  std::shared_ptr<sim::StreamCapture> capture;
  {
    const c10::StreamGuard guard(stream_);
    capture = sim::BeginCapture(stream_);
    EXPECT_TRUE(sim::IsCaptured(stream_));
    EXPECT_TRUE(sim::IsCaptured(int8_t{0}));
    EXPECT_FALSE(sim::IsCaptured(int8_t{1}));
    Work();
    sim::EndCapture(capture);
  }
  EXPECT_FALSE(sim::IsCaptured(stream_));
  EXPECT_EQ(capture->works(), 2u);
  EXPECT_EQ(X(), 0);
  for (int i = 0; i < 3; ++i) {
    sim::Replay(*capture, stream_);
    sim::Synchronise(stream_);
    EXPECT_EQ(X(), i + 1);
    EXPECT_EQ(Y(), i);
  }
}

TEST_F(StreamCaptureTest, MemoryStaysAndNumbersAreBakedIn) {
  std::shared_ptr<sim::StreamCapture> capture;
  double number = 2;
  {
    const c10::StreamGuard guard(stream_);
    capture = sim::BeginCapture(stream_);
    y_.copy_(at::add(x_, x_).mul_(number));  // a tensor that goes
    sim::EndCapture(capture);
  }
  number = 5;
  x_.fill_(3);
  sim::SynchroniseAll();
  sim::Replay(*capture, stream_);
  sim::Synchronise(stream_);
  EXPECT_EQ(Y(), 12);
}

TEST_F(StreamCaptureTest, StreamsThatWaitForItJoinIt) {
  const c10::Stream other = sim::NewStream(0);
  std::shared_ptr<sim::StreamCapture> capture;
  {
    const c10::StreamGuard guard(stream_);
    capture = sim::BeginCapture(stream_);
    x_.add_(1);
    c10::Event fork = NewEvent(), join = NewEvent();
    fork.record(stream_);
    fork.block(other);
    EXPECT_TRUE(sim::IsCaptured(other));
    {
      const c10::StreamGuard on_other(other);
      x_.mul_(2.0);
    }
    join.record(other);
    join.block(stream_);
    x_.add_(1);
    sim::EndCapture(capture);
  }
  for (int i = 0; i < 20; ++i) sim::Replay(*capture, stream_);
  sim::Synchronise(stream_);
  EXPECT_EQ(X(), 3.0f * ((1 << 20) - 1));
  sim::ReleaseStream(other);
}

TEST_F(StreamCaptureTest, AStreamThatIsNotJoinedIsAnError) {
  const c10::Stream other = sim::NewStream(0);
  const c10::StreamGuard guard(stream_);
  const auto capture = sim::BeginCapture(stream_);
  c10::Event fork = NewEvent();
  fork.record(stream_);
  fork.block(other);
  sim::Push(other, [] {});
  EXPECT_THAT(Thrown([&] { sim::EndCapture(capture); }),
              HasSubstr("has work that the first stream does not wait for"));
  EXPECT_FALSE(sim::IsCaptured(stream_));
  sim::ReleaseStream(other);
}

TEST_F(StreamCaptureTest, TheHostCannotWait) {
  const c10::StreamGuard guard(stream_);
  c10::Event outside = NewEvent();
  outside.record(sim::DefaultStream(0));
  const auto capture = sim::BeginCapture(stream_);
  c10::Event event = NewEvent();
  event.record(stream_);
  EXPECT_THAT(Thrown([&] { x_[0].item<float>(); }),
              HasSubstr("_local_scalar_dense cannot be captured"));
  EXPECT_THAT(Thrown([&] { x_.cpu(); }), HasSubstr("the host waits for it"));
  EXPECT_THAT(Thrown([&] { x_.nonzero(); }),
              HasSubstr("the host needs to know"));
  EXPECT_THAT(Thrown([&] {
                at::sin(x_.view({4, 8}));
              }),
              HasSubstr("has not run for these shapes"));
  EXPECT_THAT(Thrown([&] { stream_.synchronize(); }),
              HasSubstr("the stream is captured"));
  EXPECT_THAT(Thrown([&] { stream_.query(); }),
              HasSubstr("the stream is captured"));
  EXPECT_THAT(Thrown([&] { sim::SynchroniseDevice(0); }),
              HasSubstr("a stream of the device is captured"));
  EXPECT_THAT(Thrown([&] { event.synchronize(); }),
              HasSubstr("recorded in a capture"));
  EXPECT_THAT(Thrown([&] { outside.block(stream_); }),
              HasSubstr("an event from outside"));
  sim::DropCapture(capture);
  EXPECT_THAT(Thrown([&] { event.block(stream_); }),
              HasSubstr("an event of another capture"));
  EXPECT_EQ(X(), 0);
}

TEST_F(StreamCaptureTest, DefaultStreamsAndNestedCapturesAreRefused) {
  EXPECT_THAT(Thrown([] { sim::BeginCapture(sim::DefaultStream(0)); }),
              HasSubstr("default stream cannot be captured"));
  const auto capture = sim::BeginCapture(stream_);
  EXPECT_THAT(Thrown([&] { sim::BeginCapture(stream_); }),
              HasSubstr("captured already"));
  sim::DropCapture(capture);
}

}  // namespace
}  // namespace tandem::stream_capture_test
