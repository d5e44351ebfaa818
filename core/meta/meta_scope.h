// Meta scope: tensors of shapes without storage (torch.device("meta") as a
// context, torchdistX's fake tensors), so that a model is made, counted and cut
// without memory for it.

#ifndef TANDEM_CORE_META_META_SCOPE_H_
#define TANDEM_CORE_META_META_SCOPE_H_

#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tandem {

// While it lives, operators that the calling thread issues and that make
// tensors make them on the meta device, whatever device they are asked for: any
// torch::nn module is made without storage, and what fills its parameters
// draws and writes nothing. Results of other operators lie where their
// operands do. Scopes nest. Instead of the meta device it may be another that
// has no values: an imagined one (SimOptions::imagined).
//
// Code that reads or writes values itself (item(), data_ptr(), at::tensor of a
// list) does not work on such tensors, and throws or fails.
class MetaScope {
 public:
  explicit MetaScope(c10::Device device = c10::Device(c10::kMeta));
  ~MetaScope();
  MetaScope(const MetaScope&) = delete;
  MetaScope& operator=(const MetaScope&) = delete;

 private:
  const c10::Device outer_;
  const c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_META_META_SCOPE_H_
