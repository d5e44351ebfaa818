// Documents of a packed sample: several texts side by side in one sequence of
// tokens, told apart by what a data set gives and models and losses take.

#ifndef TANDEM_CORE_MODEL_DOCUMENTS_H_
#define TANDEM_CORE_MODEL_DOCUMENTS_H_

#include <cstdint>

namespace tandem {

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

#endif  // TANDEM_CORE_MODEL_DOCUMENTS_H_
