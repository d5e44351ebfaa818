#include "parallel/optim/optimizer_share.h"

#include "parallel/optim/aligned_length.h"

namespace tandem {

ElementSpan SpanOf(const FlatBuffer& buffer, const OptimizerShare& share) {
  const at::Tensor& values = buffer.values();
  const int64_t unit = AlignedLength(1, values);
  const int64_t units = values.numel() / unit;
  const auto begin_of = [&](int64_t rank) {
    return units * rank / share.ranks * unit;
  };
  return {begin_of(share.rank), begin_of(share.rank + 1)};
}

}  // namespace tandem
