#include "core/sim/streams/stream_capture.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace tandem {
namespace sim {
namespace {

struct Captures {
  std::mutex mutex;
  std::vector<std::shared_ptr<StreamCapture>> all;
  std::atomic<size_t> count{0};  // so that nobody else locks
};

Captures& UnderWay() {
  static auto* captures = new Captures;
  return *captures;
}

}  // namespace

StreamCapture::StreamCapture(c10::Stream origin) : origin_(origin) {
  clocks_[KeyOf(origin)] = {};
}

StreamCapture::Key StreamCapture::KeyOf(c10::Stream stream) {
  return {stream.device_index(), stream.id()};
}

bool StreamCapture::Has(c10::Stream stream) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return clocks_.count(KeyOf(stream)) > 0;
}

bool StreamCapture::HasDevice(int8_t device) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(
      clocks_.begin(), clocks_.end(),
      [device](const auto& each) { return each.first.first == device; });
}

size_t StreamCapture::works() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<size_t>(
      std::count_if(steps_.begin(), steps_.end(),
                    [](const Step& each) { return each.kind == Kind::kRun; }));
}

void StreamCapture::Append(Step step) {
  const Key key = KeyOf(step.stream);
  ++clocks_[key][key];
  steps_.push_back(std::move(step));
}

void StreamCapture::Add(c10::Stream stream, Work work) {
  std::lock_guard<std::mutex> lock(mutex_);
  Append({Kind::kRun, stream, std::move(work), 0});
}

void StreamCapture::Record(c10::Stream stream,
                           const std::shared_ptr<Event::Mark>& mark) {
  mark->capture = weak_from_this();
  mark->is_captured = true;
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t number = recorded_.size();
  Append({Kind::kPass, stream, nullptr, number});
  recorded_.push_back(clocks_[KeyOf(stream)]);
  numbers_[mark.get()] = number;
}

void StreamCapture::Hold(c10::Stream stream,
                         const std::shared_ptr<Event::Mark>& mark) {
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t number = numbers_.at(mark.get());
  Append({Kind::kWait, stream, nullptr, number});
  Clock& clock = clocks_[KeyOf(stream)];
  for (const auto& [key, steps] : recorded_[number]) {
    clock[key] = std::max(clock[key], steps);
  }
}

void StreamCapture::End() const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Clock& known = clocks_.at(KeyOf(origin_));
  for (const auto& [key, clock] : clocks_) {
    const auto own = clock.find(key);
    if (own == clock.end()) continue;
    const auto found = known.find(key);
    const bool joined = found != known.end() && found->second >= own->second;
    TORCH_CHECK(joined, "a capture ends while its stream ", key.second,
                " of sim:", key.first,
                " has work that the first stream does not wait for");
  }
}

void StreamCapture::Replay(c10::Stream stream, const Push& push) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Event::Mark>> marks;
  for (size_t i = 0; i < recorded_.size(); ++i) {
    marks.push_back(std::make_shared<Event::Mark>());
  }
  for (const Step& each : steps_) {
    const c10::Stream on = each.stream == origin_ ? stream : each.stream;
    if (each.kind == Kind::kRun) {
      push(on, each.work);
    } else if (each.kind == Kind::kPass) {
      push(on, [mark = marks[each.mark]] { mark->Pass(); });
    } else {
      push(on, [mark = marks[each.mark]] { mark->Wait(); });
    }
  }
}

void Register(const std::shared_ptr<StreamCapture>& capture) {
  std::lock_guard<std::mutex> lock(UnderWay().mutex);
  UnderWay().all.push_back(capture);
  UnderWay().count = UnderWay().all.size();
}

void Unregister(const std::shared_ptr<StreamCapture>& capture) {
  std::lock_guard<std::mutex> lock(UnderWay().mutex);
  auto& all = UnderWay().all;
  capture->Close();
  all.erase(std::remove(all.begin(), all.end(), capture), all.end());
  UnderWay().count = all.size();
}

std::shared_ptr<StreamCapture> CaptureOf(c10::Stream stream) {
  if (UnderWay().count == 0) return nullptr;
  std::lock_guard<std::mutex> lock(UnderWay().mutex);
  for (const auto& each : UnderWay().all) {
    if (each->Has(stream)) return each;
  }
  return nullptr;
}

bool IsCaptured(int8_t device) {
  if (UnderWay().count == 0) return false;
  std::lock_guard<std::mutex> lock(UnderWay().mutex);
  const auto& all = UnderWay().all;
  return std::any_of(all.begin(), all.end(), [device](const auto& each) {
    return each->HasDevice(device);
  });
}

}  // namespace sim
}  // namespace tandem
