// What a copy channel asks of streams, on a device type (meta: it has no
// values) whose streams and events only take notes.

#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/channel/copy_channel.h"

namespace tandem::stream_order_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::IsSupersetOf;

// "1.3": stream 3 of device 1.
std::string Name(const c10::Stream& stream) {
  return absl::StrCat(stream.device_index(), ".", stream.id());
}

class NotingGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kMeta; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {c10::kMeta, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_[device.index()]);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, ++streams_);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_[stream.device_index()] = stream.id();
    Note(absl::StrCat("use ", Name(stream)));
    return before;
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    const intptr_t id = ++events_;
    recorded_[id] = Name(stream);
    *event = reinterpret_cast<void*>(id);
  }
  void block(void* event, const c10::Stream& stream) const override {
    Note(absl::StrCat(Name(stream), " waits for ",
                      recorded_[reinterpret_cast<intptr_t>(event)]));
  }
  void recordDataPtrOnStream(const c10::DataPtr&,
                             const c10::Stream& stream) const override {
    Note(absl::StrCat("keep until ", Name(stream)));
  }

  std::vector<std::string> Notes() const {
    std::vector<std::string> notes;
    notes.swap(notes_);
    return notes;
  }

 private:
  void Note(const std::string& note) const { notes_.push_back(note); }

  mutable std::map<int, int64_t> current_;
  mutable std::map<intptr_t, std::string> recorded_;
  mutable std::vector<std::string> notes_;
  mutable intptr_t events_ = 0;
  mutable int64_t streams_ = 0;
};

// Each test has a guard of its own. LibTorch's registry needs one to the end of
// the process; its own, which they replace, is kept, or it would be taken for a
// leak.
const NotingGuard* NewGuard() {
  struct Guards {
    const c10::impl::DeviceGuardImplInterface* libtorchs;
    std::vector<std::unique_ptr<NotingGuard>> ours;
  };
  static auto* all = new Guards{c10::impl::getDeviceGuardImpl(c10::kMeta), {}};
  all->ours.push_back(std::make_unique<NotingGuard>());
  c10::impl::registerDeviceGuard(c10::kMeta, all->ours.back().get());
  return all->ours.back().get();
}

class StreamOrderTest : public testing::Test {
 protected:
  static at::Tensor Example() { return at::empty({3}, at::device(c10::kMeta)); }

  const NotingGuard* guard_ = NewGuard();
  const c10::Device first_{c10::kMeta, 0};
  const c10::Device second_{c10::kMeta, 1};
};

TEST_F(StreamOrderTest, TheCpuHasNoStreams) {
  EXPECT_EQ(NewStream(c10::kCPU), nullptr);
  EXPECT_NE(NewStream(first_), nullptr);
}

// The first direction's streams are 0.1 and 1.2; that of gradients has 1.3 and
// 0.4.
TEST_F(StreamOrderTest, SendingWaitsForTheProducerAndTakingForTheCopy) {
  const CopyChannel channel(first_, second_);
  PendingCopy pending = channel.Send(Example());
  EXPECT_THAT(guard_->Notes(),
              ElementsAre("0.1 waits for 0.0", "1.2 waits for 0.0", "use 0.1",
                          "use 1.2", "use 0.0", "use 1.0", "keep until 0.1",
                          "keep until 1.2"));
  guard_->exchangeStream(c10::Stream(c10::Stream::UNSAFE, second_, 9));
  guard_->Notes();
  EXPECT_EQ(pending.Take().size(), 1u);
  EXPECT_THAT(
      guard_->Notes(),
      ElementsAre("1.9 waits for 0.1", "1.9 waits for 1.2", "keep until 1.9"));
}

TEST_F(StreamOrderTest, SendingBackHasStreamsOfItsOwn) {
  const CopyChannel channel(first_, second_);
  channel.SendBack({Example(), Example()}).Take();
  EXPECT_THAT(guard_->Notes(),
              ElementsAre("1.3 waits for 1.0", "0.4 waits for 1.0", "use 1.3",
                          "use 0.4", "use 1.0", "use 0.0", "keep until 1.3",
                          "keep until 1.3", "keep until 0.4", "keep until 0.4",
                          "0.0 waits for 1.3", "0.0 waits for 0.4",
                          "keep until 0.0", "keep until 0.0"));
}

TEST_F(StreamOrderTest, WhoWritesToWhatWasSentWaitsForTheCopy) {
  const CopyChannel channel(first_, second_);
  const PendingCopy pending = channel.Send(Example());
  guard_->Notes();
  pending.Release(CurrentStream(first_));
  EXPECT_THAT(guard_->Notes(),
              ElementsAre("0.0 waits for 0.1", "0.0 waits for 1.2"));
}

TEST_F(StreamOrderTest, ADifferentiableCopyIsReleasedToo) {
  const CopyChannel channel(first_, second_);
  channel.Copy(Example());
  EXPECT_THAT(
      guard_->Notes(),
      ElementsAre("0.1 waits for 0.0", "1.2 waits for 0.0", "use 0.1",
                  "use 1.2", "use 0.0", "use 1.0", "keep until 0.1",
                  "keep until 1.2", "0.0 waits for 0.1", "0.0 waits for 1.2",
                  "1.0 waits for 0.1", "1.0 waits for 1.2", "keep until 1.0"));
}

TEST_F(StreamOrderTest, AGradientIsReadyOnTheStreamOfForward) {
  const CopyChannel channel(first_, second_);
  at::Tensor x = Example().requires_grad_();
  guard_->exchangeStream(c10::Stream(c10::Stream::UNSAFE, first_, 5));
  const at::Tensor y = channel.Copy(x);
  guard_->exchangeStream(c10::Stream(c10::Stream::DEFAULT, first_));
  guard_->Notes();
  y.sum().backward();
  EXPECT_THAT(guard_->Notes(),
              IsSupersetOf({"1.3 waits for 1.0", "0.4 waits for 1.0", "use 1.3",
                            "use 0.4", "keep until 1.3", "keep until 0.4",
                            "1.0 waits for 1.3", "1.0 waits for 0.4",
                            "0.5 waits for 1.3", "0.5 waits for 0.4",
                            "keep until 0.5", "0.0 waits for 1.3",
                            "0.0 waits for 0.4", "keep until 0.0"}));
}

TEST_F(StreamOrderTest, ADeviceToItselfNeedsNoOrder) {
  const CopyChannel channel(second_, second_);
  channel.Send(Example()).Take();
  EXPECT_THAT(guard_->Notes(), IsEmpty());
}

TEST_F(StreamOrderTest, AStepCanBeReplaced) {
  struct Forgetful : StreamOrder {
    void FollowProducer(const c10::Stream&, const c10::Stream&) const override {
    }
    void Keep(const at::Tensor&, const c10::Stream&) const override {}
  };
  const CopyChannel channel(first_, second_, std::make_shared<Forgetful>());
  channel.Send(Example()).Take();
  EXPECT_THAT(guard_->Notes(),
              ElementsAre("use 0.1", "use 1.2", "use 0.0", "use 1.0",
                          "1.0 waits for 0.1", "1.0 waits for 1.2"));
}

}  // namespace
}  // namespace tandem::stream_order_test
