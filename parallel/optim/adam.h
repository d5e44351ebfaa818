// Adam and AdamW.

#ifndef TANDEM_PARALLEL_OPTIM_ADAM_H_
#define TANDEM_PARALLEL_OPTIM_ADAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "parallel/optim/flat_buffer_list.h"
#include "parallel/optim/optimizer.h"
#include "parallel/optim/optimizer_options.h"
#include "parallel/optim/optimizer_share.h"

namespace tandem {

// torch.optim.Adam (Kingma and Ba, arXiv:1412.6980) and torch.optim.AdamW
// (Loshchilov and Hutter, arXiv:1711.05101), either with AMSGrad (Reddi et al.,
// arXiv:1904.09237), as fused steps over `buffers`, which must outlive them.
// State: exp_avg, exp_avg_sq, max_exp_avg_sq with amsgrad, and step for each
// parameter. InvalidArgument for betas outside [0, 1) and for negative
// or non-finite values.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(
    const AdamOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of = nullptr);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdamW(
    const AdamWOptions& options, const FlatBufferList& buffers,
    const ShareOfBuffer& share_of = nullptr);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_OPTIM_ADAM_H_
