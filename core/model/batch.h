// Batch of samples, and the score of one: what a step computes on and comes to.

#ifndef TANDEM_CORE_MODEL_BATCH_H_
#define TANDEM_CORE_MODEL_BATCH_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <map>
#include <string>

namespace tandem {

// Some samples, stacked along dimension 0. On a rank that holds a middle stage
// of a pipeline there is no tensor.
struct Batch {
  at::Tensor inputs;   // [size, ...]
  at::Tensor targets;  // [size, ...], int64 class numbers
  int64_t size = 0;
  // What a model takes beside them (a mask, token types, a second image), by
  // name: tensors [size, ...], or tuples, lists and dicts of such. Layers say
  // what they read of it (LayerLinks::reads). Needed where `inputs` are.
  std::map<std::string, c10::IValue> further_inputs = {};
  // What the loss takes beside the targets (boxes, a second label), in the same
  // way; LossNames::targets says what it reads. Needed where `targets` are.
  std::map<std::string, c10::IValue> further_targets = {};
  // Which samples these are: a number that is the same for the same ones in the
  // same order, as a hash of their numbers is. A loader sets it
  // (datasets/loader.h); ranks of a pipeline compare theirs. A part of a batch
  // has the whole one's. 0: not known.
  uint64_t identity = 0;
};

// What a batch, or several, came to. Sums, so that they can be added up across
// batches and ranks.
struct Score {
  double loss_sum = 0;  // over the predictions
  int64_t correct = 0;  // predictions whose greatest logit is the target's
  int64_t count = 0;    // predictions: samples, or tokens

  double loss() const { return count == 0 ? 0 : loss_sum / count; }
  double accuracy() const {
    return count == 0 ? 0 : static_cast<double>(correct) / count;
  }
  Score& operator+=(const Score& other) {
    loss_sum += other.loss_sum;
    correct += other.correct;
    count += other.count;
    return *this;
  }
};

// Documents of a packed sample: several texts side by side in one sequence of
// tokens, told apart by what a data set gives and models and losses take.

// The further input (Batch::further_inputs) that says where documents begin:
// int64 [n, tokens], of each token the place, within its sample, of its
// document's first token. Token i attends to those from there to i, and its
// position is i less that place. A sample's first token begins a document,
// whatever came before the sample.
constexpr char kDocumentBegins[] = "document_begins";

// Target of a document's last token, which the next document's first token is
// no continuation of: no prediction (CrossEntropyIgnoring). The number is
// PyTorch's default ignore_index, and no class.
constexpr int64_t kNoTarget = -100;

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_BATCH_H_
