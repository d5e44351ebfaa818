#include "models/tensor_parallel_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <glog/logging.h>

#include <memory>
#include <utility>

#include "core/loss/loss_terms.h"
#include "core/model/axis/axis_functions.h"
#include "core/model/axis/shard.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/axis/tensor_region.h"
#include "models/chunked_loss.h"
#include "models/classification_loss.h"
#include "models/functions/cross_entropy/cross_entropy_function.h"
#include "models/functions/cross_entropy/vocab_parallel_cross_entropy_function.h"

namespace tandem {
namespace {

using Options = TensorParallelLossOptions;

// This rank's classes.
ShardRange Classes(const Options& options, const TensorParallel& parallel) {
  return RangeOfRank(options.classes, parallel.group->degree(),
                     parallel.group->index());
}

void CheckClasses(const Options& options, const ShardRange& range,
                  int64_t given) {
  TORCH_CHECK_VALUE(range.size == given, "a loss of ", options.classes,
                    " classes, of which ", range.size,
                    " are this rank's, was given a part of ", given,
                    ": expected the head's vocabulary");
}

// What all ranks' logits come to, and, of labels to be smoothed, their sums.
struct Joined {
  at::Tensor numbers;  // [n, 5]
  at::Tensor sums;     // [n], or undefined
};

Joined OfLogits(const Options& options, const TensorParallel& parallel,
                const at::Tensor& outputs, const at::Tensor& labels) {
  TORCH_CHECK(outputs.dim() >= 2 && outputs.size(-1) > 0 &&
                  outputs.numel() / outputs.size(-1) == labels.numel(),
              "cross entropy of logits ", outputs.sizes(), " and ",
              labels.numel(),
              " targets: the logits need the targets' shape and, behind it, "
              "this rank's classes");
  const at::Tensor logits = outputs.reshape({labels.numel(), outputs.size(-1)});
  const ShardRange range = Classes(options, parallel);
  CheckClasses(options, range, logits.size(1));
  Joined joined;
  joined.numbers = JoinVocabPartsOverAxis(
      VocabPartOfLogits(logits, labels, range.begin), parallel.group);
  if (options.label_smoothing > 0) {
    const at::ScalarType dtype = joined.numbers.scalar_type();
    joined.sums = ReduceFromAxis(logits.sum(1, /*keepdim=*/false, dtype),
                                 parallel.group, "sums of logits");
  }
  return joined;
}

// The same from the head's input, by the weight that it has left.
Joined OfChunks(const Options& options, const TensorParallel& parallel,
                const LossArguments& arguments, const at::Tensor& labels) {
  const at::Tensor weight = arguments.further_outputs.at(options.head_weight);
  const ShardRange range = Classes(options, parallel);
  CheckClasses(options, range, weight.size(0));
  const at::Tensor x =
      TensorRegion(parallel, options.head_weight).Enter(arguments.outputs);
  return {JoinVocabPartsOverAxis(
              VocabPartFunction(x.reshape({-1, x.size(-1)}), weight, labels,
                                range.begin, options.chunk),
              parallel.group),
          at::Tensor()};
}

// By how much targets' logits are above the means (SmoothedCrossEntropy).
at::Tensor AboveMeans(const Options& options, const Joined& joined,
                      const at::Tensor& labels) {
  const at::Tensor above = joined.numbers.select(1, 1) -
                           joined.sums / static_cast<double>(options.classes);
  return options.ignore_index
             ? above.masked_fill(labels.eq(*options.ignore_index), 0)
             : above;
}

CrossEntropyResult Rows(const Options& options, const LossArguments& arguments,
                        const at::Tensor& labels) {
  const auto parallel = TensorParallelScope::Current();
  const Joined joined =
      options.chunk > 0
          ? OfChunks(options, *parallel, arguments, labels)
          : OfLogits(options, *parallel, arguments.outputs, labels);
  CrossEntropyResult result =
      CrossEntropyOfVocabParts(joined.numbers, labels, options.ignore_index);
  if (options.label_smoothing > 0) {
    result.losses =
        result.losses +
        AboveMeans(options, joined, labels).mul(options.label_smoothing);
  }
  if (options.z_loss > 0) {
    AddAuxiliaryLoss("z_loss", joined.numbers.select(1, 0).square().mean().mul(
                                   options.z_loss));
  }
  return result;
}

LossFunction Whole(const Options& options) {
  if (options.chunk > 0) {
    return ChunkedCrossEntropy(options.head_weight, options.chunk,
                               options.ignore_index);
  }
  LossFunction loss =
      SmoothedCrossEntropy(options.label_smoothing, options.ignore_index);
  return options.z_loss > 0 ? WithZLoss(std::move(loss), options.z_loss) : loss;
}

// With what is for training alone.
LossFunction Trained(const Options& options) {
  LossNames names;
  if (options.chunk > 0) names.outputs = {options.head_weight};
  const LossFunction divided = CrossEntropyOfRows(
      names,
      [options](const LossArguments& arguments, const at::Tensor& labels) {
        return Rows(options, arguments, labels);
      },
      options.ignore_index);
  return LossFunction::OfAnyPrecision(LossFunction(
      std::move(names),
      [divided, whole = Whole(options)](const LossArguments& arguments) {
        return TensorParallelScope::Current() == nullptr ? whole(arguments)
                                                         : divided(arguments);
      },
      divided.weight()));
}

}  // namespace

LossFunction TensorParallelCrossEntropy(const Options& options) {
  CHECK_GE(options.classes, 1);
  CHECK(options.chunk == 0 ||
        (options.label_smoothing == 0 && options.z_loss == 0))
      << "a loss in chunks is neither smoothed nor has it a z-loss";
  Options evaluated = options;
  evaluated.label_smoothing = 0;
  evaluated.z_loss = 0;
  return LossFunction::EvaluatedBy(Trained(options), Trained(evaluated));
}

}  // namespace tandem
