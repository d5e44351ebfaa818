// Strangers: connections to every door of a running job, by who does not belong
// to it. For tests.

#ifndef TANDEM_TESTS_E2E_STRANGERS_STRANGERS_H_
#define TANDEM_TESTS_E2E_STRANGERS_STRANGERS_H_

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/owned_fd.h"
#include "tests/e2e/program.h"

namespace tandem {

// What a job listens on: the launcher's store, Gloo's ports of its ranks, the
// abstract sockets by which ranks of a host find each other.
enum class Door { kStore, kGloo, kLocal };
std::string NameOf(Door door);

// How strangers behave, and whether they then stay.
struct Manners {
  std::string name;
  std::string says;
  int how_many = 3;
  bool stays = true;
};
const std::vector<Manners>& AllManners();

// While it lives, strangers of these manners come to each door of `program`'s
// processes as soon as it is there, and once more a while later; at a kind of
// door that has turned some away, until `how_many` have been let in.
class Strangers {
 public:
  Strangers(const Program& program, const Manners& manners);
  ~Strangers() { Stop(); }

  void Stop();
  // How many have been connected so far, by door.
  std::map<Door, int> connected() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connected_;
  }

 private:
  void Run();
  // Names of sockets that are listened on, and their kind.
  std::map<std::string, Door> Doors() const;
  void Knock(const std::string& name, Door door);

  const Program& program_;
  const Manners manners_;
  mutable std::mutex mutex_;
  std::map<Door, int> connected_;  // under it
  std::vector<OwnedFd> staying_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_STRANGERS_STRANGERS_H_
