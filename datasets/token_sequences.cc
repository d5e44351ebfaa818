#include "datasets/token_sequences.h"

#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "datasets/check_indices.h"
#include "datasets/tokens/token_file.h"

namespace tandem {
namespace {

class TokenSequences : public Dataset {
 public:
  TokenSequences(TokenFile file, int64_t context, int64_t vocabulary)
      : file_(std::move(file)), context_(context), vocabulary_(vocabulary) {}

  // The last one's last target is a token, too.
  int64_t size() const override { return (file_.size() - 1) / context_; }
  std::vector<int64_t> input_shape() const override { return {context_}; }
  bool tokens() const override { return true; }
  int64_t classes() const override { return vocabulary_; }

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

  const TokenFile file_;
  const int64_t context_;
  const int64_t vocabulary_;
};

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
  const char* const name =
      options.split == Split::kTrain ? "train.bin" : "val.bin";
  TANDEM_ASSIGN_OR_RETURN(
      TokenFile file, TokenFile::Open(absl::StrCat(options.folder, "/", name)));
  if (file.size() < options.context + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), " has ", file.size(), " tokens, and a sample of context ",
        options.context, " needs ", options.context + 1,
        ": give a shorter context, or more text"));
  }
  const int64_t vocabulary =
      options.vocabulary > 0 ? options.vocabulary : file.usual_vocabulary();
  std::unique_ptr<Dataset> sequences = std::make_unique<TokenSequences>(
      std::move(file), options.context, vocabulary);
  return sequences;
}

}  // namespace tandem
