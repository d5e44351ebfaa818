// The backend that PyTorch's own tests of c10d run on, in the place of Gloo.

#ifndef TANDEM_TESTS_OUTSIDE_C10D_SHIM_H_
#define TANDEM_TESTS_OUTSIDE_C10D_SHIM_H_

#include <ATen/ATen.h>
#include <c10/util/intrusive_ptr.h>
#include <glog/logging.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/shm/backend.h"
#include "core/shm/group.h"
#include "core/store/store.h"

namespace tandem {

// What those tests use of c10d::ProcessGroupGloo: its constructor, and its
// options.
class OutsideGroup : public ShmBackend {
 public:
  struct Options : torch::CustomClassHolder {
    static c10::intrusive_ptr<Options> create() {
      return c10::make_intrusive<Options>();
    }
    std::chrono::milliseconds timeout{0};
    std::vector<int> devices;  // of Gloo alone
  };
  static int createDeviceForHostname(const std::string&) { return 0; }

  OutsideGroup(const StorePtr& store, int rank, int size,
               const c10::intrusive_ptr<Options>& options)
      : ShmBackend(Connect(store, rank, size), kPatience * options->timeout),
        store_(store) {}

 private:
  // The tests' second is short for a machine that runs others beside them.
  static constexpr int kPatience = 3;

  static std::shared_ptr<ShmGroup> Connect(const StorePtr& store, int rank,
                                           int size) {
    auto group = ShmGroup::Create(store, rank, size, std::chrono::seconds(60));
    CHECK(group.ok()) << group.status();
    return *std::move(group);
  }

  // The group keeps it as long as Gloo's does, so that they go one after the
  // other, in one thread: a FileStore whose last ones go at once leaves its
  // file for the next group.
  const StorePtr store_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_OUTSIDE_C10D_SHIM_H_
