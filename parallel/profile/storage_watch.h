// Storage watch: how much of the memory that operators make lives on, and who
// made it: what a layer's forward keeps for its backward, on any device and
// with any allocator.

#ifndef TANDEM_PARALLEL_PROFILE_STORAGE_WATCH_H_
#define TANDEM_PARALLEL_PROFILE_STORAGE_WATCH_H_

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <map>
#include <vector>

namespace tandem {

// While it lives, it sees every operator's outputs on the calling thread (by
// LibTorch's RecordFunction); it keeps none of them alive. One a thread. Used
// by the thread that made it.
class StorageWatch {
 public:
  StorageWatch();
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

  // A tensor that is there anyway, or is meant to stay: neither it nor views of
  // it are counted, whoever made them.
  void Ignore(const at::Tensor& tensor);

  // What is made from now on is `maker`'s, 0 or more. Before the first call
  // nothing is counted.
  void SetMaker(int maker) { maker_ = maker; }

  // The bytes of each maker's storages that something still holds. A storage
  // that several tensors share counts once, for who made it first.
  std::vector<int64_t> AliveBytes(int makers) const;

 private:
  struct Seen {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int maker;
  };

  static void OnEnd(const at::RecordFunction& function,
                    at::ObserverContext* context);
  void See(const at::Tensor& tensor, int maker);

  int maker_ = -1;
  // The address of a storage stays its own while it is watched.
  std::map<const c10::StorageImpl*, Seen> seen_;
  at::CallbackHandle handle_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_PROFILE_STORAGE_WATCH_H_
