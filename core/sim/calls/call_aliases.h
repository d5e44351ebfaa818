// Aliases of one operator call: its tensors seen as CPU tensors over the same
// memory, and back.

#ifndef TANDEM_CORE_SIM_CALLS_CALL_ALIASES_H_
#define TANDEM_CORE_SIM_CALLS_CALL_ALIASES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace tandem {
namespace sim {

// Whether the tensor is a simulated device's.
bool IsSim(const at::Tensor& tensor);

// One object serves one call. Tensors over one storage stay over one, so that
// kernels see what overlaps.
class CallAliases {
 public:
  CallAliases() = default;
  CallAliases(const CallAliases&) = delete;
  CallAliases& operator=(const CallAliases&) = delete;

  // A CPU tensor over the memory of `tensor`; undefined and CPU tensors come
  // back themselves. c10::Error for kinds that are not simulated.
  at::Tensor ToHost(const at::Tensor& tensor);
  c10::Storage ToHost(const c10::Storage& storage);

  // What a kernel made of them, on `device`: the original tensor if it is one
  // of the call's, a view of its storage if it lies there, else a tensor that
  // takes the memory over.
  at::Tensor ToDevice(const at::Tensor& result, int8_t device);

  // Takes back what the kernel has done to its arguments themselves: storages
  // that it has resized, and shapes that it has changed.
  void WriteBack(int8_t device);

 private:
  struct StorageAlias {
    c10::Storage original;
    c10::Storage host;
    const void* data;  // of host, before the call
  };
  struct TensorAlias {
    at::Tensor original;
    at::Tensor host;
  };

  const TensorAlias* Find(const at::Tensor& host) const;
  c10::Storage StorageOnDevice(const c10::Storage& host, int8_t device);
  void WriteBack(const TensorAlias& alias, int8_t device);

  c10::SmallVector<StorageAlias, 4> storages_;
  c10::SmallVector<TensorAlias, 4> tensors_;
};

// A CPU tensor over the memory of a simulated device's, alone.
at::Tensor HostAlias(const at::Tensor& tensor);

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_CALLS_CALL_ALIASES_H_
