#include "models/functions/attention_heads.h"

namespace tandem {

std::vector<at::Tensor> HeadsOf(const at::Tensor& qkv, int64_t heads) {
  std::vector<at::Tensor> parts = qkv.chunk(3, /*dim=*/-1);
  for (at::Tensor& part : parts) {
    part = part.unflatten(2, {heads, part.size(2) / heads}).transpose(1, 2);
  }
  return parts;
}

at::Tensor JoinHeads(const at::Tensor& heads) {
  return heads.transpose(1, 2).flatten(2);
}

}  // namespace tandem
