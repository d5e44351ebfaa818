#include "core/sim/calls/call_aliases.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "core/device/memory_category.h"
#include "core/sim/memory/block.h"
#include "core/sim/memory/memory.h"

namespace tandem {
namespace sim {

bool IsSim(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

constexpr DispatchKeySet kBits({DispatchKey::Conjugate, DispatchKey::Negative,
                                DispatchKey::ZeroTensor});

void DropStorage(void* storage) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(storage));
}

// Not ReleaseBlock itself, by which FindBlock() knows memory that is to be
// taken over.
void DropBlock(void* data) { ReleaseBlock(data); }

// The memory itself, for the host. The block is held, not the storage, which
// may be resized, by another stream's thread, while a queue still works on it.
c10::DataPtr Hold(const c10::Storage& original, void* data) {
  const c10::Device host(c10::DeviceType::CPU);
  Block* const block = FindBlock(original.data_ptr());
  if (block != nullptr && block->data() == data) {
    block->references.fetch_add(1, std::memory_order_relaxed);
    return c10::DataPtr(data, data, &DropBlock, host);
  }
  c10::StorageImpl* const held = original.unsafeGetStorageImpl();
  c10::raw::intrusive_ptr::incref(held);
  return c10::DataPtr(data, held, &DropStorage, host);
}

// A CPU storage over the same memory, which it holds.
c10::Storage Over(const c10::Storage& original, void* data) {
  return c10::Storage(c10::Storage::use_byte_size_t(), original.nbytes(),
                      Hold(original, data), c10::GetCPUAllocator(),
                      /*resizable=*/true);
}

// A tensor like `like` with another storage and key.
at::Tensor Like(const at::Tensor& like, c10::Storage storage, DispatchKey key) {
  const c10::TensorImpl& from = *like.unsafeGetTensorImpl();
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), DispatchKeySet(key) | (from.key_set() & kBits),
      from.dtype());
  c10::TensorImpl& to = *made.unsafeGetTensorImpl();
  to.set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  if (from.is_wrapped_number()) to.set_wrapped_number(true);
  return made;
}

void CheckPlain(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == c10::Layout::Strided && tensor.has_storage() &&
          !tensor.is_quantized() && !tensor.is_nested(),
      "simulated devices have dense tensors alone, not ", tensor.toString(),
      "; use the CPU for it");
}

// Shape and strides, where they differ.
void CopyGeometry(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() == to.sizes() && from.strides() == to.strides() &&
      from.storage_offset() == to.storage_offset()) {
    return;
  }
  to.unsafeGetTensorImpl()->set_sizes_and_strides(from.sizes(), from.strides(),
                                                  from.storage_offset());
}

c10::DataPtr CopyOnDevice(const c10::Storage& host, int8_t device) {
  c10::DataPtr memory =
      AllocateOnDevice(host.nbytes(), device, CategoryOfResults());
  std::memcpy(ToHostPointer(memory.get()), host.data(), host.nbytes());
  return memory;
}

// The memory that a kernel made, taken over.
c10::DataPtr TakeMemory(const c10::Storage& host, int8_t device) {
  // None: empty, or autograd's zeros that nobody has looked at.
  if (host.data() == nullptr) {
    return c10::DataPtr(nullptr,
                        c10::Device(c10::DeviceType::PrivateUse1, device));
  }
  Block* block = FindBlock(host.data_ptr());
  if (block == nullptr || block->device != device) {
    return CopyOnDevice(host, device);
  }
  Recategorise(*block, CategoryOfResults());
  return OnDevice(*block);
}

}  // namespace

c10::Storage CallAliases::ToHost(const c10::Storage& storage) {
  if (storage.device_type() != c10::DeviceType::PrivateUse1) return storage;
  for (const StorageAlias& each : storages_) {
    if (each.original.unsafeGetStorageImpl() ==
        storage.unsafeGetStorageImpl()) {
      return each.host;
    }
  }
  void* data = ToHostPointer(storage.data());
  storages_.push_back({storage, Over(storage, data), data});
  return storages_.back().host;
}

at::Tensor CallAliases::ToHost(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (!IsSim(tensor)) {
    tensors_.push_back({tensor, tensor});
    return tensor;
  }
  CheckPlain(tensor);
  for (const TensorAlias& each : tensors_) {
    if (each.original.is_same(tensor)) return each.host;
  }
  tensors_.push_back(
      {tensor, Like(tensor, ToHost(tensor.storage()), DispatchKey::CPU)});
  return tensors_.back().host;
}

const CallAliases::TensorAlias* CallAliases::Find(
    const at::Tensor& host) const {
  for (const TensorAlias& each : tensors_) {
    if (each.host.is_same(host)) return &each;
  }
  return nullptr;
}

c10::Storage CallAliases::StorageOnDevice(const c10::Storage& host,
                                          int8_t device) {
  for (const StorageAlias& each : storages_) {
    if (each.host.unsafeGetStorageImpl() == host.unsafeGetStorageImpl()) {
      return each.original;
    }
  }
  c10::Storage made(c10::Storage::use_byte_size_t(), host.nbytes(),
                    TakeMemory(host, device), DeviceAllocator(),
                    /*resizable=*/true);
  // Several results may lie in it.
  storages_.push_back({made, host, host.data()});
  return made;
}

at::Tensor CallAliases::ToDevice(const at::Tensor& result, int8_t device) {
  if (!result.defined() || IsSim(result)) return result;
  const TensorAlias* argument = Find(result);
  if (argument != nullptr) return argument->original;
  CheckPlain(result);
  return Like(result, StorageOnDevice(result.storage(), device),
              DispatchKey::PrivateUse1);
}

void CallAliases::WriteBack(const TensorAlias& alias, int8_t device) {
  if (alias.original.is_same(alias.host)) return;
  const c10::Storage& storage = alias.host.storage();
  const auto mine = [&](const StorageAlias& each) {
    return each.host.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl() &&
           each.original.unsafeGetStorageImpl() ==
               alias.original.storage().unsafeGetStorageImpl();
  };
  if (!std::any_of(storages_.begin(), storages_.end(), mine)) {
    // set_: it lies in another storage now.
    alias.original.unsafeGetTensorImpl()->set_storage_keep_dtype(
        StorageOnDevice(storage, device));
  }
  CopyGeometry(alias.host, alias.original);
}

void CallAliases::WriteBack(int8_t device) {
  for (const StorageAlias& each : storages_) {
    if (each.host.data() == each.data &&
        each.host.nbytes() == each.original.nbytes()) {
      continue;
    }
    each.original.set_data_ptr_noswap(TakeMemory(each.host, device));
    each.original.set_nbytes(each.host.nbytes());
  }
  for (const TensorAlias& each : tensors_) WriteBack(each, device);
}

at::Tensor HostAlias(const at::Tensor& tensor) {
  CheckPlain(tensor);
  const c10::Storage& storage = tensor.storage();
  return Like(tensor, Over(storage, ToHostPointer(storage.data())),
              DispatchKey::CPU);
}

}  // namespace sim
}  // namespace tandem
