#include "parallel/optim/flat_memory.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <glog/logging.h>

#include <utility>

namespace tandem {

FlatMemory::FlatMemory(at::Tensor whole, MemoryCategory category)
    : whole_(std::move(whole)),
      category_(category),
      own_span_{0, whole_.numel()} {}

at::Tensor FlatMemory::Part(int64_t begin, int64_t end) const {
  CHECK(own_span_.begin <= begin && begin <= end && end <= own_span_.end)
      << begin << " to " << end << " of " << own_span_.begin << " to "
      << own_span_.end;
  return is_sharded() ? own_.narrow(0, begin - own_span_.begin, end - begin)
                      : whole_.narrow(0, begin, end - begin);
}

void FlatMemory::Shard(const ElementSpan& own, const at::Tensor& memory) {
  CHECK(!is_sharded());
  CHECK_EQ(memory.numel(), own.length());
  const at::NoGradGuard no_grad;
  memory.copy_(whole_.narrow(0, own.begin, own.length()));
  own_ = memory;
  own_span_ = own;
  ReleaseWhole();
}

void FlatMemory::TakeWhole() {
  CHECK(!has_whole_);
  const c10::OptionalDeviceGuard guard(whole_.device());
  const MemoryCategoryScope scope(category_);
  c10::StorageImpl* const storage = whole_.storage().unsafeGetStorageImpl();
  // The storage may have come from a group's memory, which is no allocator's.
  c10::Allocator* const allocator = c10::GetAllocator(whole_.device().type());
  storage->set_data_ptr_noswap(allocator->allocate(storage->nbytes()));
  has_whole_ = true;
}

// Its size stays, so that views can be made of it.
void FlatMemory::ReleaseWhole() {
  CHECK(is_sharded() && has_whole_);
  whole_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(nullptr, whole_.device()));
  has_whole_ = false;
}

}  // namespace tandem
