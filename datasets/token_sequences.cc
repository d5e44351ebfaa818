#include "datasets/token_sequences.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/batch.h"
#include "datasets/dataset.h"
#include "datasets/tokens/documents.h"
#include "datasets/tokens/token_file.h"

namespace tandem {
namespace {

class TokenSequences : public Dataset {
 public:
  // `ends`: how documents are told apart, where they are to be.
  TokenSequences(TokenFile file, uint32_t digest, int64_t context,
                 int64_t vocabulary, const std::optional<DocumentEnds>& ends)
      : file_(std::move(file)),
        digest_(absl::StrCat(absl::Hex(digest, absl::kZeroPad8))),
        context_(context),
        vocabulary_(vocabulary),
        ends_(ends) {}

  // The last one's last target is a token, too.
  int64_t size() const override {
    return std::max<int64_t>(file_.size() - 1, 0) / context_;
  }
  std::vector<int64_t> input_shape() const override { return {context_}; }
  bool tokens() const override { return true; }
  int64_t classes() const override { return vocabulary_; }
  std::string digest() const override { return digest_; }

  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    TANDEM_RETURN_IF_ERROR(CheckIndices(indices, size()));
    Batch batch;
    batch.size = indices.size();
    if (parts.inputs) {
      TANDEM_ASSIGN_OR_RETURN(batch.inputs, Tokens(indices, /*shift=*/0));
    }
    if (parts.targets) {
      TANDEM_ASSIGN_OR_RETURN(batch.targets, Tokens(indices, /*shift=*/1));
    }
    if (ends_) TANDEM_RETURN_IF_ERROR(TellApart(indices, parts, batch));
    return batch;
  }

 private:
  absl::StatusOr<at::Tensor> Tokens(absl::Span<const int64_t> indices,
                                    int64_t shift) const {
    const auto count = static_cast<int64_t>(indices.size());
    at::Tensor tokens = at::empty({count, context_}, at::kLong);
    auto* next = tokens.mutable_data_ptr<int64_t>();
    for (const int64_t index : indices) {
      const absl::Span<int64_t> sample(next, static_cast<size_t>(context_));
      TANDEM_RETURN_IF_ERROR(
          file_.Read(index * context_ + shift, vocabulary_, sample));
      next += context_;
    }
    return tokens;
  }

  absl::Status TellApart(absl::Span<const int64_t> indices,
                         const BatchParts& parts, Batch& batch) const {
    at::Tensor begins =
        at::zeros({parts.inputs ? batch.size : 0, context_}, at::kLong);
    for (int64_t row = 0; row < batch.size; ++row) {
      TANDEM_ASSIGN_OR_RETURN(
          const std::vector<int64_t> places,
          DocumentsWithin(file_, *ends_, vocabulary_,
                          indices[static_cast<size_t>(row)] * context_,
                          context_));
      if (parts.inputs) FillBegins(places, begins[row]);
      if (parts.targets) LeaveOutLast(places, batch.targets[row]);
    }
    if (parts.inputs) batch.further_inputs[kDocumentBegins] = begins;
    return absl::OkStatus();
  }

  void FillBegins(const std::vector<int64_t>& places,
                  const at::Tensor& row) const {
    auto* begins = row.mutable_data_ptr<int64_t>();
    for (const int64_t place : places) {
      std::fill(begins + place, begins + context_, place);
    }
  }

  static void LeaveOutLast(const std::vector<int64_t>& places,
                           const at::Tensor& row) {
    auto* targets = row.mutable_data_ptr<int64_t>();
    for (const int64_t place : places) targets[place - 1] = kNoTarget;
  }

  const TokenFile file_;
  const std::string digest_;
  const int64_t context_;
  const int64_t vocabulary_;
  const std::optional<DocumentEnds> ends_;
};

absl::StatusOr<std::optional<DocumentEnds>> FindDocumentEnds(
    const TokenSequencesOptions& options, const TokenFile& file,
    int64_t vocabulary) {
  const bool is_empty = file.size() == 0;
  if (!options.document_masks || is_empty) return std::optional<DocumentEnds>();
  DocumentEnds ends;
  if (options.end_of_text >= 0) ends.end_of_text = options.end_of_text;
  TANDEM_RETURN_IF_ERROR(CheckDocumentEnds(file, ends, vocabulary));
  return ends;
}

int64_t UsedVocabulary(const TokenSequencesOptions& options,
                       const TokenFile& file) {
  if (options.vocabulary > 0) return options.vocabulary;
  const bool is_unsaid =
      !file.says_vocabulary() && options.unsaid_vocabulary > 0;
  return is_unsaid ? options.unsaid_vocabulary : file.usual_vocabulary();
}

absl::Status CheckSize(const TokenSequencesOptions& options,
                       const TokenFile& file) {
  const bool is_none = options.split == Split::kTest && file.size() == 0;
  if (is_none || file.size() >= options.context + 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), " has ", file.size(), " tokens, and a sample of context ",
      options.context, " needs ", options.context + 1,
      ": give a shorter context, or more text"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokenSequences(
    const TokenSequencesOptions& options) {
  if (options.folder.empty()) {
    return absl::InvalidArgumentError(
        "tokens need a data_dir, the folder of train.bin and val.bin");
  }
  if (options.context < 1 || options.vocabulary < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: context ", options.context, ", vocabulary ",
                     options.vocabulary,
                     "; expected a context of at least 1 "
                     "and a vocabulary of at least 1, or 0 for the files'"));
  }
  if (options.token_bytes != 0 && options.token_bytes != 2 &&
      options.token_bytes != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: token_bytes ", options.token_bytes,
                     "; expected 2 or 4, or 0 for what the files say"));
  }
  const char* const name =
      options.split == Split::kTrain ? "train.bin" : "val.bin";
  TANDEM_ASSIGN_OR_RETURN(
      TokenFile file, TokenFile::Open(absl::StrCat(options.folder, "/", name),
                                      options.token_bytes));
  TANDEM_RETURN_IF_ERROR(CheckSize(options, file));
  TANDEM_ASSIGN_OR_RETURN(const uint32_t digest, file.Digest());
  const int64_t vocabulary = UsedVocabulary(options, file);
  TANDEM_ASSIGN_OR_RETURN(const std::optional<DocumentEnds> ends,
                          FindDocumentEnds(options, file, vocabulary));
  std::unique_ptr<Dataset> sequences = std::make_unique<TokenSequences>(
      std::move(file), digest, options.context, vocabulary, ends);
  return sequences;
}

}  // namespace tandem
