// Breakable works: waits for another backend's works that end when a
// connection of the group has broken, whatever the backend knows of it.

#ifndef TANDEM_CORE_BACKEND_BREAKABLE_WORKS_H_
#define TANDEM_CORE_BACKEND_BREAKABLE_WORKS_H_

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tandem {

// Gloo (LibTorch 2.11) gives the error of a broken connection to what waits in
// line for it, but not to what was half sent or half received, nor to what it
// tried to send in the moment in which the other side went: these wait for
// their timeout. Here a thread of the group asks `probe`, a second after a wait
// began and then each time it has lasted half as long again, whether a
// connection is broken, and ends the group's waits if one is. Costs nothing
// while waits are short.
//
// Thread-safe.
class BreakableWorks {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // `probe` throws once a connection of the group is broken. Called on a thread
  // of this object's until the destructor has returned, and not after Break.
  // `keep_backend` is called when a wait for a collective was ended which may
  // still run: its backend must live on, for its destructor would wait for it.
  BreakableWorks(std::function<void()> probe,
                 std::function<void()> keep_backend);
  ~BreakableWorks();
  BreakableWorks(const BreakableWorks&) = delete;
  BreakableWorks& operator=(const BreakableWorks&) = delete;

  // A work whose wait() is `message`'s, and throws when a connection breaks.
  // `message` runs as long as it is waited for, and abort() ends that.
  WorkPtr OfMessage(WorkPtr message);
  // The same of a work with a future, which runs on a thread of its backend.
  WorkPtr OfCollective(WorkPtr collective);

  // Ends the waits: what has not ended by then, or a moment later, throws
  // `reason`. The first reason counts.
  void Break(const std::string& reason);

  class State;

 private:
  void Run();

  const std::function<void()> probe_;
  const std::shared_ptr<State> state_;
  std::thread thread_;  // starts last
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_BREAKABLE_WORKS_H_
