// Completion notice: a cheap way to learn when a collective ends.

#ifndef TANDEM_CORE_SHM_COMPLETION_NOTICE_H_
#define TANDEM_CORE_SHM_COMPLETION_NOTICE_H_

#include <functional>

namespace tandem {

// For a c10d::Work that is also one of these, instead of its getFuture():
// making a future, and having a thread complete what nobody waits for, takes
// longer than a small collective does.
class NotifiesCompletion {
 public:
  virtual ~NotifiesCompletion() = default;

  // Calls `callback` once when the work is done: on the thread that completes
  // it, before its wait() returns; at once if it is done already. It does not
  // make the work go on: somebody waits for it, here or on another rank.
  virtual void OnCompletion(std::function<void()> callback) = 0;
};

}  // namespace tandem

#endif  // TANDEM_CORE_SHM_COMPLETION_NOTICE_H_
