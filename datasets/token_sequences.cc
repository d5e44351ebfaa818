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
#include "core/digest/crc32.h"
#include "core/model/batch.h"
#include "datasets/dataset.h"
#include "datasets/tokens/documents.h"
#include "datasets/tokens/token_file.h"
#include "datasets/tokens/token_shards.h"

namespace tandem {
namespace {

// How many samples a file has. The last one's last target is a token, too.
int64_t SampleCount(const TokenFile& file, int64_t context) {
  return std::max<int64_t>(file.size() - 1, 0) / context;
}

class TokenSequences : public Dataset {
 public:
  // `ends`: how documents are told apart, where they are to be.
  TokenSequences(std::vector<TokenFile> files, uint32_t digest, int64_t context,
                 int64_t vocabulary, const std::optional<DocumentEnds>& ends)
      : files_(std::move(files)),
        digest_(absl::StrCat(absl::Hex(digest, absl::kZeroPad8))),
        context_(context),
        vocabulary_(vocabulary),
        ends_(ends) {
    for (const TokenFile& file : files_) {
      samples_end_.push_back(size() + SampleCount(file, context));
    }
  }

  int64_t size() const override {
    return samples_end_.empty() ? 0 : samples_end_.back();
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
  // A sample's first token.
  struct Place {
    const TokenFile& file;
    int64_t first;
  };

  Place SamplePlace(int64_t index) const {
    const auto shard = static_cast<size_t>(
        std::upper_bound(samples_end_.begin(), samples_end_.end(), index) -
        samples_end_.begin());
    const int64_t before = shard == 0 ? 0 : samples_end_[shard - 1];
    return {files_[shard], (index - before) * context_};
  }

  absl::StatusOr<at::Tensor> Tokens(absl::Span<const int64_t> indices,
                                    int64_t shift) const {
    const auto count = static_cast<int64_t>(indices.size());
    at::Tensor tokens = at::empty({count, context_}, at::kLong);
    auto* next = tokens.mutable_data_ptr<int64_t>();
    for (const int64_t index : indices) {
      const absl::Span<int64_t> sample(next, static_cast<size_t>(context_));
      const Place place = SamplePlace(index);
      TANDEM_RETURN_IF_ERROR(
          place.file.Read(place.first + shift, vocabulary_, sample));
      next += context_;
    }
    return tokens;
  }

  absl::Status TellApart(absl::Span<const int64_t> indices,
                         const BatchParts& parts, Batch& batch) const {
    at::Tensor begins =
        at::zeros({parts.inputs ? batch.size : 0, context_}, at::kLong);
    for (int64_t row = 0; row < batch.size; ++row) {
      const Place sample = SamplePlace(indices[static_cast<size_t>(row)]);
      TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> places,
                              DocumentsWithin(sample.file, *ends_, vocabulary_,
                                              sample.first, context_));
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

  const std::vector<TokenFile> files_;
  // Behind the last sample of each.
  std::vector<int64_t> samples_end_;
  const std::string digest_;
  const int64_t context_;
  const int64_t vocabulary_;
  const std::optional<DocumentEnds> ends_;
};

absl::StatusOr<std::optional<DocumentEnds>> FindDocumentEnds(
    const TokenSequencesOptions& options, const std::vector<TokenFile>& files,
    int64_t vocabulary) {
  std::optional<DocumentEnds> found;
  for (const TokenFile& file : files) {
    if (!options.document_masks || file.size() == 0) continue;
    found.emplace();
    if (options.end_of_text >= 0) found->end_of_text = options.end_of_text;
    TANDEM_RETURN_IF_ERROR(CheckDocumentEnds(file, *found, vocabulary));
  }
  return found;
}

int64_t UsedVocabulary(const TokenSequencesOptions& options,
                       const TokenFile& file) {
  if (options.vocabulary > 0) return options.vocabulary;
  const bool is_unsaid =
      !file.says_vocabulary() && options.unsaid_vocabulary > 0;
  return is_unsaid ? options.unsaid_vocabulary : file.usual_vocabulary();
}

absl::Status CheckSize(const TokenSequencesOptions& options,
                       const std::vector<TokenFile>& files) {
  int64_t tokens = 0;
  int64_t samples = 0;
  for (const TokenFile& file : files) {
    tokens += file.size();
    samples += SampleCount(file, options.context);
  }
  const bool is_none = options.split == Split::kTest && tokens == 0;
  if (is_none || samples > 0) return absl::OkStatus();
  const std::string needed = absl::StrCat(
      "a sample of context ", options.context, " needs ", options.context + 1,
      ": give a shorter context, or more text");
  return absl::InvalidArgumentError(
      files.size() == 1
          ? absl::StrCat(files.front().path(), " has ", tokens, " tokens, and ",
                         needed)
          : absl::StrCat(files.front().path(), " and ", files.size() - 1,
                         " more have ", tokens,
                         " tokens, none as many by itself as ", needed));
}

absl::StatusOr<uint32_t> FilesDigest(const std::vector<TokenFile>& files) {
  if (files.size() == 1) return files.front().Digest();
  uint32_t digest = 0;
  for (const TokenFile& file : files) {
    TANDEM_ASSIGN_OR_RETURN(const uint32_t one, file.Digest());
    digest = Crc32(digest, &one, sizeof(one));
  }
  return digest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokenSequences(
    const TokenSequencesOptions& options) {
  if (options.folder.empty()) {
    return absl::InvalidArgumentError(
        "tokens need a data_dir, the folder of train.bin and val.bin, or of "
        "their shards");
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
  TANDEM_ASSIGN_OR_RETURN(
      std::vector<TokenFile> files,
      OpenTokenShards(options.folder,
                      options.split == Split::kTrain ? "train" : "val",
                      options.token_bytes));
  TANDEM_RETURN_IF_ERROR(CheckSize(options, files));
  TANDEM_ASSIGN_OR_RETURN(const uint32_t digest, FilesDigest(files));
  const int64_t vocabulary = UsedVocabulary(options, files.front());
  TANDEM_ASSIGN_OR_RETURN(const std::optional<DocumentEnds> ends,
                          FindDocumentEnds(options, files, vocabulary));
  std::unique_ptr<Dataset> sequences = std::make_unique<TokenSequences>(
      std::move(files), digest, options.context, vocabulary, ends);
  return sequences;
}

}  // namespace tandem
