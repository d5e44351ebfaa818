#include "parallel/profile/storage_watch.h"

#include <ATen/core/ivalue.h>
#include <glog/logging.h>

#include <cstddef>
#include <memory>

namespace tandem {
namespace {

thread_local StorageWatch* current = nullptr;

}  // namespace

StorageWatch::StorageWatch() {
  CHECK(current == nullptr) << "this thread has a StorageWatch already";
  current = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(nullptr, &StorageWatch::OnEnd)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

StorageWatch::~StorageWatch() {
  at::removeCallback(handle_);
  current = nullptr;
}

void StorageWatch::OnEnd(const at::RecordFunction& function,
                         at::ObserverContext* /*context*/) {
  if (current == nullptr) return;
  for (const c10::IValue& output : function.outputs()) {
    if (output.isTensor()) {
      current->See(output.toTensor(), current->maker_);
    } else if (output.isTensorList()) {
      for (const at::Tensor& each : output.toTensorVector()) {
        current->See(each, current->maker_);
      }
    }
  }
}

void StorageWatch::Ignore(const at::Tensor& tensor) {
  See(tensor, -1);
  if (!tensor.defined() || !tensor.has_storage()) return;
  seen_.at(tensor.storage().unsafeGetStorageImpl()).maker = -1;
}

void StorageWatch::See(const at::Tensor& tensor, int maker) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const c10::Storage& storage = tensor.storage();
  seen_.try_emplace(storage.unsafeGetStorageImpl(),
                    Seen{storage.getWeakStorageImpl(), maker});
}

std::vector<int64_t> StorageWatch::AliveBytes(int makers) const {
  std::vector<int64_t> bytes(static_cast<size_t>(makers), 0);
  for (const auto& [address, seen] : seen_) {
    if (seen.maker < 0 || seen.maker >= makers) continue;
    const auto alive = seen.storage.lock();
    if (alive) bytes[seen.maker] += static_cast<int64_t>(alive->nbytes());
  }
  return bytes;
}

}  // namespace tandem
