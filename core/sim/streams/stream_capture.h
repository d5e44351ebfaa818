// Stream capture: work of simulated streams, written down instead of run, to be
// run as often as asked for (cudaStreamBeginCapture, cudaGraphLaunch).

#ifndef TANDEM_CORE_SIM_STREAMS_STREAM_CAPTURE_H_
#define TANDEM_CORE_SIM_STREAMS_STREAM_CAPTURE_H_

#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/sim/streams/stream_queue.h"

namespace tandem {
namespace sim {

// Of one stream, and of those that wait for an event of it meanwhile: they join
// the capture, and the first one must wait for all that they do before it ends.
// Works hold what they work on, so memory stays as long as the capture.
//
// It refuses what CUDA refuses, by c10::Error: a wait for an event from outside
// (which would be a wait for something that no replay repeats), and a stream
// that was not joined at the end. Thread-safe.
class StreamCapture : public std::enable_shared_from_this<StreamCapture> {
 public:
  using Work = std::function<void()>;
  using Push = std::function<void(c10::Stream stream, Work work)>;

  explicit StreamCapture(c10::Stream origin);

  // No longer under way: nothing joins it.
  void Close() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }
  bool Has(c10::Stream stream) const;
  bool HasDevice(int8_t device) const;

  // For streams that are in it.
  void Add(c10::Stream stream, Work work);
  void Record(c10::Stream stream, const std::shared_ptr<Event::Mark>& mark);
  // `stream` joins, where it is not in it yet; `mark` is one of Record.
  void Hold(c10::Stream stream, const std::shared_ptr<Event::Mark>& mark);

  // Nothing comes any more.
  void End() const;

  // Gives `push` all works, in their order: those of the first stream for
  // `stream`, others for their own.
  void Replay(c10::Stream stream, const Push& push) const;
  size_t works() const;

 private:
  using Key = std::pair<int, int64_t>;  // device and number
  // How many steps of each stream are known to be done.
  using Clock = std::map<Key, size_t>;
  enum class Kind { kRun, kPass, kWait };
  struct Step {
    Kind kind;
    c10::Stream stream;
    Work work;
    size_t mark;
  };

  static Key KeyOf(c10::Stream stream);
  void Append(Step step);

  const c10::Stream origin_;
  std::atomic<bool> is_closed_{false};
  mutable std::mutex mutex_;
  std::vector<Step> steps_;
  std::map<Key, Clock> clocks_;  // of the streams that are in it
  std::map<const Event::Mark*, size_t> numbers_;
  std::vector<Clock> recorded_;  // by mark
};

// Captures that are under way, of all threads.
void Register(const std::shared_ptr<StreamCapture>& capture);
void Unregister(const std::shared_ptr<StreamCapture>& capture);
// Null: the stream's work runs.
std::shared_ptr<StreamCapture> CaptureOf(c10::Stream stream);
bool IsCaptured(int8_t device);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_STREAMS_STREAM_CAPTURE_H_
