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

#include "core/backend/breakable_waits.h"

namespace tandem {

// Gloo (LibTorch 2.15) gives the error of a broken connection to what waits in
// line for it, but not to what was half sent or half received, nor to what it
// tried to send in the moment in which the other side went: these wait for
// their timeout. Here a thread of the group asks `probe`, a second after a wait
// began and then each time it has lasted half as long again, whether its
// connection is broken, and ends the group's waits if one that needs it is not
// over a moment later. Costs nothing while waits are short.
//
// A rank that has done its part may go before the others are done. A message
// needs its own peer alone; a collective's connections are all looked at, and
// it is given longer, and for as long as bytes move between the others: their
// last phase may be long, on a slow network.
//
// Thread-safe.
class BreakableWorks {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // `probe` throws once the connection to `peer` (BreakableWaits::kAll: one of
  // all) is broken. Called on a thread of this object's until the destructor
  // has returned, and not after Break; so is `have_moved`: whether bytes went
  // over the group's connections since it was called last. `keep_backend` is
  // called when a wait for a collective was ended which may still run: its
  // backend must live on, for its destructor would wait for it.
  BreakableWorks(std::function<void(int peer)> probe,
                 std::function<bool()> have_moved,
                 std::function<void()> keep_backend);
  ~BreakableWorks();
  BreakableWorks(const BreakableWorks&) = delete;
  BreakableWorks& operator=(const BreakableWorks&) = delete;

  // A work whose wait() is that of `message`, from or to `peer`, and throws
  // when a connection breaks. `message` runs as long as it is waited for, and
  // abort() ends that.
  WorkPtr OfMessage(WorkPtr message, int peer);
  // The same of a work with a future, which runs on a thread of its backend.
  WorkPtr OfCollective(WorkPtr collective);

  // Ends the waits: what has not ended by then, or a moment later, throws
  // `reason`. The first reason counts.
  void Break(const std::string& reason);

 private:
  void Run();

  const std::function<void(int)> probe_;
  const std::function<bool()> have_moved_;
  const std::function<void()> keep_backend_;
  // Works may be waited for after this object has gone.
  const std::shared_ptr<BreakableWaits> waits_;
  std::thread thread_;  // starts last
};

}  // namespace tandem

#endif  // TANDEM_CORE_BACKEND_BREAKABLE_WORKS_H_
