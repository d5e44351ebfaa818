#include "tools/trainer/evaluation/text_sampler.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/comm/group_agreement.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "models/hugging_face/model_config.h"
#include "tools/generation/model_tokens.h"
#include "tools/trainer/evaluation/model_copy.h"
#include "tools/trainer/job/save_folder.h"

namespace tandem {
namespace {

GenerationOptions RequestedGeneration(const TrainOptions& options) {
  GenerationOptions generation;
  generation.max_new_tokens = options.max_new_tokens;
  generation.sampling.temperature = options.temperature;
  generation.sampling.seed = options.seed;
  return generation;
}

absl::Status UnknownToken(const TrainOptions& options, int64_t token,
                          int64_t vocabulary) {
  return absl::InvalidArgumentError(
      absl::StrCat("--prompt=", options.prompt, " has token ", token,
                   ", but the model knows ", vocabulary,
                   " alone: the tokenizer is not that of its texts"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextSampler>> TextSampler::Create(Job& job) {
  auto sampler =
      absl::WrapUnique(new TextSampler(job, RequestedGeneration(job.options)));
  const absl::Status mine =
      job.is_rank_zero() ? sampler->Prepare() : absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(mine, "prepared --sample_every", *job.world));
  return sampler;
}

absl::Status TextSampler::Prepare() {
  const TrainOptions& options = job_.options;
  if (!job_.transformer.has_value() || !job_.data.train->tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sample_every=", options.sample_every,
                     " continues a text, but --model=", options.model,
                     " is no GPT or Llama: leave it out"));
  }
  const std::string source = JobTokenizer(options);
  if (source.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sample_every=", options.sample_every,
        " needs a tokenizer, and none lies beside the token files (--data_dir) "
        "or in --init_from: bazel run //tools:tokenize puts one there"));
  }
  TANDEM_ASSIGN_OR_RETURN(tokenizer_, OpenTokenizer(source));
  const TransformerOptions& model = job_.transformer->model;
  const int64_t vocabulary = VocabularySize(model);
  TANDEM_RETURN_IF_ERROR(
      CheckTokenizerFits(*tokenizer_, vocabulary, job_.data.train->classes()));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> prompt,
                          tokenizer_->Encode(options.prompt));
  prompt_.assign(tokenizer_->prefix().begin(), tokenizer_->prefix().end());
  prompt_.insert(prompt_.end(), prompt.begin(), prompt.end());
  for (const int64_t token : prompt_) {
    if (token >= vocabulary) return UnknownToken(options, token, vocabulary);
  }
  TANDEM_ASSIGN_OR_RETURN(options_.ends,
                          AllEndTokens(job_.transformer->config,
                                       job_.transformer->generation_config,
                                       tokenizer_.get(), vocabulary));
  context_ = ContextLength(model);
  TANDEM_ASSIGN_OR_RETURN(layers_, MakeModelCopy(job_));
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextSampler::Continue() const {
  TANDEM_ASSIGN_OR_RETURN(Generator generator,
                          Generator::Read(layers_, prompt_, context_));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens,
                          generator.Generate(options_));
  const std::vector<uint32_t> text(tokens.begin(), tokens.end());
  return absl::StrCat(job_.options.prompt, tokenizer_->Decode(text));
}

absl::StatusOr<std::string> TextSampler::Sample() {
  TANDEM_RETURN_IF_ERROR(UpdateModelCopy(job_, layers_));
  absl::StatusOr<std::string> text =
      job_.is_rank_zero() ? Continue() : std::string();
  TANDEM_RETURN_IF_ERROR(
      AgreeOnSuccess(text.status(), "continued --prompt", *job_.world));
  return text;
}

}  // namespace tandem
