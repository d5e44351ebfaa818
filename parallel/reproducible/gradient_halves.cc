#include "parallel/reproducible/gradient_halves.h"

#include <ATen/core/grad_mode.h>
#include <glog/logging.h>

#include <utility>

namespace tandem {

void GradientHalves::Add(int microbatch, const at::Tensor& part, bool awaits) {
  const at::NoGradGuard no_grad;
  const bool is_second =
      !entries_.empty() && entries_.front().sum.microbatch == microbatch;
  if (is_second) {
    Entry& entry = entries_.front();
    CHECK(!entry.is_whole && !awaits);
    at::Tensor& sum = entry.sum.gradient;
    // Two terms: their order does not matter.
    if (part.defined()) sum = sum.defined() ? part.add_(sum) : part;
    entry.is_whole = true;
    return;
  }
  const bool stays = awaits || !entries_.empty();
  entries_.push_back(
      {{microbatch, stays && part.defined() ? part.clone() : part}, !awaits});
}

std::optional<GradientHalves::Whole> GradientHalves::Next() {
  if (entries_.empty() || !entries_.front().is_whole) return std::nullopt;
  Whole next = std::move(entries_.front().sum);
  entries_.pop_front();
  return next;
}

}  // namespace tandem
