// Continues a prompt with what a trained model has learned. --help.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "core/program/command_line.h"
#include "core/program/exit_code.h"
#include "core/program/openmp_waits.h"
#include "core/program/process.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "models/decoding/generator.h"
#include "models/decoding/sampling.h"
#include "tools/generation/model_tokens.h"
#include "tools/generation/trained_model.h"
#include "tools/trainer/job/save_folder.h"
#include "tools/trainer/settings/options.h"

ABSL_FLAG(
    std::string, checkpoint, "",
    "What train has saved: a file, or a folder, of which its latest; or a "
    "folder with config.json and weights, as Hugging Face's libraries "
    "write it.");
ABSL_FLAG(std::string, model, "",
          "The model's name; empty: the one that the checkpoint names.");
ABSL_FLAG(int64_t, layers, 0, "Transformer blocks. 0: as the named model's.");
ABSL_FLAG(int64_t, width, 0, "Width of the model. 0: as the named model's.");
ABSL_FLAG(int64_t, heads, 0, "Attention heads. 0: as the named model's.");
ABSL_FLAG(int64_t, kv_heads, 0, "Key-value heads. 0: the named model's.");
ABSL_FLAG(int64_t, ffn_width, 0, "Width of the MLPs. 0: as the named model's.");
ABSL_FLAG(std::string, tokenizer, "",
          "bytes, or a tokenizer's file or folder; empty: the one that train "
          "has kept beside --checkpoint, or that lies in that folder, else "
          "bytes.");
ABSL_FLAG(std::string, device, "cpu", "Where to compute: cpu, cuda or sim.");
ABSL_FLAG(std::string, dtype, "fp32",
          "In which precision: fp32, bf16, fp16 or fp64.");
ABSL_FLAG(std::string, prompt, "", "The text to go on from.");
ABSL_FLAG(std::string, prompt_file, "", "A file with that text.");
ABSL_FLAG(int64_t, max_new_tokens, tandem::GenerationOptions().max_new_tokens,
          "The most tokens that are generated.");
ABSL_FLAG(double, temperature, tandem::SamplingOptions().temperature,
          "Divides the logits; 0: always the most likely token.");
ABSL_FLAG(int64_t, top_k, 0, "Only so many of the most likely tokens; 0: all.");
ABSL_FLAG(double, top_p, 1,
          "Only the most likely tokens of so much probability together.");
ABSL_FLAG(uint64_t, seed, 0, "The same seed gives the same texts.");
ABSL_FLAG(int64_t, num_samples, 1, "Texts that continue the prompt.");
ABSL_FLAG(bool, stop_at_end, true,
          "Stop at what ends a text: each eos_token_id of config.json and "
          "generation_config.json, and the tokenizer's end of text.");
ABSL_FLAG(int64_t, intra_op_threads, 0,
          "Threads of operators, 1024 at most; 0: OMP_NUM_THREADS where it is "
          "set, else as many as there are cores.");

namespace tandem {
namespace {

constexpr char kUsage[] =
    "Continues a prompt with what a model has learned.\n\n"
    "  generate --checkpoint=runs/a --prompt='Once upon'\n"
    "  generate --checkpoint=FILE --prompt_file=FILE --temperature=0\n"
    "  generate --checkpoint=FILE --prompt=A --top_k=40 --num_samples=3\n\n"
    "The texts go to the standard output, and nothing else does. The exit "
    "code is 2\nwhen something that was given is wrong, 1 when something else "
    "failed.";

absl::StatusOr<std::string> ReadPrompt() {
  const std::string prompt = absl::GetFlag(FLAGS_prompt);
  const std::string file = absl::GetFlag(FLAGS_prompt_file);
  if (prompt.empty() == file.empty()) {
    return absl::InvalidArgumentError(
        "give a text to go on from: --prompt=TEXT or --prompt_file=FILE");
  }
  if (file.empty()) return prompt;
  std::ifstream stream(UserPath(file), std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (stream.is_open() && !text.str().empty()) return text.str();
  return absl::InvalidArgumentError(
      absl::StrCat("--prompt_file=", file, ": it cannot be read, or is empty"));
}

absl::StatusOr<std::vector<int64_t>> EncodePrompt(const Tokenizer& tokenizer,
                                                  const std::string& text) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> own,
                          tokenizer.Encode(text));
  std::vector<int64_t> tokens(tokenizer.prefix().begin(),
                              tokenizer.prefix().end());
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

absl::Status CheckTokens(const std::vector<int64_t>& tokens,
                         int64_t vocabulary) {
  for (const int64_t token : tokens) {
    if (token < vocabulary) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has token ", token, ", but the model knows ", vocabulary,
        ": the tokenizer is not the model's; name that with "
        "--tokenizer (without it: the one beside the checkpoint, "
        "or else bytes)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerationOptions> OptionsFromFlags() {
  GenerationOptions options;
  options.max_new_tokens = absl::GetFlag(FLAGS_max_new_tokens);
  options.sampling.temperature = absl::GetFlag(FLAGS_temperature);
  options.sampling.top_k = absl::GetFlag(FLAGS_top_k);
  options.sampling.top_p = absl::GetFlag(FLAGS_top_p);
  options.sampling.seed = absl::GetFlag(FLAGS_seed);
  TANDEM_RETURN_IF_ERROR(CheckSampling(options.sampling));
  if (options.sampling.temperature == 0) {
    TANDEM_RETURN_IF_ERROR(
        CheckUseless({"top_k", "top_p", "seed"},
                     "--temperature=0 takes the most likely token, and draws "
                     "none"));
  }
  if (options.max_new_tokens < 0 || absl::GetFlag(FLAGS_num_samples) < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max_new_tokens=", options.max_new_tokens, " --num_samples=",
        absl::GetFlag(FLAGS_num_samples), ": expected 0 and 1 or more"));
  }
  return options;
}

// The one that --tokenizer names, else the model's own, else bytes.
std::string TokenizerFromFlags() {
  const std::string given = absl::GetFlag(FLAGS_tokenizer);
  if (given == "bytes") return given;
  if (!given.empty()) return UserPath(given);
  const std::string kept =
      KeptTokenizer(UserPath(absl::GetFlag(FLAGS_checkpoint)));
  return kept.empty() ? "bytes" : kept;
}

// Checks that the model's tokens can be those of the tokenizer called `name`.
absl::Status CheckFits(const std::string& name, const Tokenizer& tokenizer,
                       const TrainedModel& model) {
  const absl::Status fits = CheckTokenizerFits(
      tokenizer, model.limits.vocabulary, model.texts_vocabulary);
  if (fits.ok()) return fits;
  const bool is_guessed =
      absl::GetFlag(FLAGS_tokenizer).empty() && name == "bytes";
  return absl::InvalidArgumentError(absl::StrCat(
      "--checkpoint=", absl::GetFlag(FLAGS_checkpoint),
      is_guessed ? ": no tokenizer lies beside it, and bytes is not its own: "
                 : absl::StrCat(": the tokenizer ", name, " is not its own: "),
      fits.message(),
      "; give the one that its texts were made with (--tokenizer)"));
}

TrainedModelOptions ModelFromFlags() {
  TrainedModelOptions options;
  options.checkpoint = absl::GetFlag(FLAGS_checkpoint);
  options.name = absl::GetFlag(FLAGS_model);
  options.sizes.layers = absl::GetFlag(FLAGS_layers);
  options.sizes.width = absl::GetFlag(FLAGS_width);
  options.sizes.heads = absl::GetFlag(FLAGS_heads);
  options.sizes.kv_heads = absl::GetFlag(FLAGS_kv_heads);
  options.sizes.ffn_width = absl::GetFlag(FLAGS_ffn_width);
  return options;
}

// With the prompt, as the texts come.
absl::Status PrintTexts(const std::string& prompt, const Tokenizer& tokenizer,
                        const GenerationOptions& options,
                        Generator& generator) {
  const int64_t samples = absl::GetFlag(FLAGS_num_samples);
  for (int64_t sample = 0; sample < samples; ++sample) {
    if (samples > 1) std::cout << "--- " << sample + 1 << "\n";
    std::cout << prompt << std::flush;
    const auto print = [&](int64_t token) {
      std::cout << tokenizer.Decode({static_cast<uint32_t>(token)})
                << std::flush;
    };
    TANDEM_RETURN_IF_ERROR(generator.Generate(options, sample, print).status());
    std::cout << std::endl;
  }
  if (std::cout.good()) return absl::OkStatus();
  return absl::UnavailableError("cannot write to the standard output");
}

absl::Status Run(int argc, char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> leftovers,
                          ParseCommandLine(argc, argv, kUsage));
  if (!leftovers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", leftovers.front(), "' is no flag"));
  }
  SetLibTorchLogLevel();
  TANDEM_ASSIGN_OR_RETURN(
      const int threads, RequestedThreads(absl::GetFlag(FLAGS_intra_op_threads),
                                          kMostIntraOpThreads));
  ConfigureProcess(IntraOpThreads(threads, {}));
  TANDEM_ASSIGN_OR_RETURN(const std::string prompt, ReadPrompt());
  TrainedModelOptions trained = ModelFromFlags();
  TANDEM_ASSIGN_OR_RETURN(
      trained.placement,
      ParsePlacement(absl::GetFlag(FLAGS_device), absl::GetFlag(FLAGS_dtype)));
  const std::string name = TokenizerFromFlags();
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          OpenTokenizer(name));
  TANDEM_ASSIGN_OR_RETURN(GenerationOptions options, OptionsFromFlags());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens,
                          EncodePrompt(*tokenizer, prompt));
  TANDEM_ASSIGN_OR_RETURN(TrainedModel model, LoadTrainedModel(trained));
  TANDEM_RETURN_IF_ERROR(CheckFits(name, *tokenizer, model));
  TANDEM_RETURN_IF_ERROR(CheckTokens(tokens, model.limits.vocabulary));
  if (absl::GetFlag(FLAGS_stop_at_end)) {
    TANDEM_ASSIGN_OR_RETURN(
        options.ends, AllEndTokens(model.config, model.generation_config,
                                   tokenizer.get(), model.limits.vocabulary));
  }
  TANDEM_ASSIGN_OR_RETURN(
      Generator generator,
      Generator::Read(std::move(model.layers), tokens, model.limits.context,
                      trained.placement.device));
  return PrintTexts(prompt, *tokenizer, options, generator);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::WaitPassivelyWhereBusy(argc, argv);
  return tandem::Conclude("generate", tandem::Run(argc, argv));
}
