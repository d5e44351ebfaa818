// Vocabulary-parallel cross entropy (Megatron-LM, 1909.08053, section 3): that
// of one part of the vocabulary, and how parts become the whole, of which each
// row needs no more than a few numbers.

#ifndef TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_VOCAB_PARALLEL_CROSS_ENTROPY_FUNCTION_H_
#define TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_VOCAB_PARALLEL_CROSS_ENTROPY_FUNCTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "core/model/axis/axis_functions.h"
#include "models/functions/cross_entropy/cross_entropy_function.h"

namespace tandem {

// What classes so far come to: [n, 5], float or double, of each row
//   0  the logarithm of the sum of its logits' exponentials,
//   1  the target's logit, 0 where the target is none of these classes,
//   2  the greatest logit,
//   3  1 where that one, the first of equals, is the target's, else 0,
//   4  1 where the target is one of these classes, else 0.
// The first two are differentiable.
constexpr int64_t kVocabPartNumbers = 5;

// The part of the classes from `first_class` on, whose logits are x weight^T: x
// [n, width], weight [classes, width], 1 class or more, int64 targets [n] of
// the whole vocabulary. Logits are computed for `chunk` rows at a time, 1 or
// more, and again in backward, as LinearCrossEntropyFunction does it: needs
// memory for those of two chunks. Throws c10::Error on shapes that do not fit.
at::Tensor VocabPartFunction(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& targets, int64_t first_class,
                             int64_t chunk);

// The same of logits [n, classes] that are there already, and are kept for
// backward, which computes in float or double and gives their dtype.
at::Tensor VocabPartOfLogits(const at::Tensor& logits,
                             const at::Tensor& targets, int64_t first_class);

// The two parts as one: `before` of earlier classes, `part` of those that
// follow them.
at::Tensor JoinVocabParts(const at::Tensor& before, const at::Tensor& part);

// All ranks' parts as one, in the order of their indices, on each of them the
// same bits: one all-gather of a few numbers a row, and none in backward, for
// what follows is computed alike by all.
at::Tensor JoinVocabPartsOverAxis(const at::Tensor& part,
                                  const AxisGroupPtr& group);

// What all classes come to. A target that is none of them, nor ignored: throws
// c10::Error on the CPU; elsewhere, where nobody waits to see it, its loss is
// NaN.
CrossEntropyResult CrossEntropyOfVocabParts(const at::Tensor& parts,
                                            const at::Tensor& targets,
                                            std::optional<int64_t> ignored);

}  // namespace tandem

#endif  // TANDEM_MODELS_FUNCTIONS_CROSS_ENTROPY_VOCAB_PARALLEL_CROSS_ENTROPY_FUNCTION_H_
