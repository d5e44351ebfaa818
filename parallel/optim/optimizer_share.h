// Optimizer share: the part of a flat buffer whose optimizer state one rank
// keeps (ZeRO stage 1; torch.distributed.optim.ZeroRedundancyOptimizer).

#ifndef TANDEM_PARALLEL_OPTIM_OPTIMIZER_SHARE_H_
#define TANDEM_PARALLEL_OPTIM_OPTIMIZER_SHARE_H_

#include <cstdint>
#include <functional>

#include "parallel/optim/flat_buffer.h"

namespace tandem {

// Which of how many ranks (Rajbhandari et al., arXiv:1910.02054).
struct OptimizerShare {
  int rank = 0;
  int ranks = 1;

  bool is_whole() const { return ranks == 1; }
};

// How the optimizer of a buffer is shared; null: each rank has all of it.
using ShareOfBuffer = std::function<OptimizerShare(const FlatBuffer&)>;

// Elements [begin, end) of a flat buffer.
struct ElementSpan {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t length() const { return end - begin; }
};

// The share's elements: those of all ranks follow each other and make up the
// buffer, each begins on a 64-byte boundary (so that kernels round as they
// would over the whole buffer), and their lengths differ by at most 64 bytes.
ElementSpan SpanOf(const FlatBuffer& buffer, const OptimizerShare& share);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_OPTIMIZER_SHARE_H_
