#include "models/hugging_face/model_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "models/hugging_face/config_fields.h"
#include "models/hugging_face/transformer_config.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char kEndField[] = "eos_token_id";
constexpr char kTextsField[] = "tandem_vocabulary";

std::string Text(const OrderedJson& config) {
  return config.dump(2, ' ', /*ensure_ascii=*/true,
                     OrderedJson::error_handler_t::replace) +
         "\n";
}

absl::StatusOr<ModelConfig> Read(ConfigFields& fields) {
  ModelConfig config;
  const std::string type = fields.Word("model_type", "");
  if (type == "gpt2") {
    config.model = ReadGpt2Config(fields, &config.note);
  } else if (type == "llama") {
    config.model = ReadLlamaConfig(fields, &config.note);
  } else {
    TANDEM_RETURN_IF_ERROR(fields.status());
    return absl::InvalidArgumentError(absl::StrCat(
        "its model_type is '", type, "', known here are gpt2 and llama"));
  }
  if (fields.Has("quantization_config")) {
    fields.Refuse("quantization_config", "quantised weights are not read here");
  }
  TANDEM_RETURN_IF_ERROR(fields.status());
  // Sizes that do not go together.
  TANDEM_RETURN_IF_ERROR(LayersOf(config.model).status());
  return config;
}

}  // namespace

std::string HubCacheHint(const std::string& folder) {
  namespace fs = std::filesystem;
  std::string newest;  // by its name: any will do for a hint
  std::error_code error;
  for (fs::directory_iterator each(fs::path(folder) / "snapshots", error), end;
       !error && each != end; each.increment(error)) {
    if (!fs::exists(each->path() / kConfigFile, error)) continue;
    newest = std::max(newest, each->path().string());
  }
  return newest.empty() ? "" : absl::StrCat(" (did you mean ", newest, "?)");
}

absl::StatusOr<ModelConfig> ReadModelConfig(absl::string_view text) {
  TANDEM_ASSIGN_OR_RETURN(ConfigFields fields, ConfigFields::Parse(text));
  return Read(fields);
}

std::string WriteModelConfig(const TransformerOptions& model,
                             const std::optional<std::vector<int64_t>>& ends) {
  if (const auto* gpt = std::get_if<GptOptions>(&model)) {
    return Text(WriteGpt2Config(*gpt, ends));
  }
  return Text(WriteLlamaConfig(std::get<LlamaOptions>(model),
                               ends.value_or(std::vector<int64_t>())));
}

absl::StatusOr<std::vector<int64_t>> ReadEndTokens(absl::string_view config) {
  TANDEM_ASSIGN_OR_RETURN(const ConfigFields fields,
                          ConfigFields::Parse(config));
  return fields.Tokens(kEndField);
}

std::string WithEndTokens(absl::string_view config,
                          const std::vector<int64_t>& ends) {
  std::vector<int64_t> all = ReadEndTokens(config).value();
  const size_t own = all.size();
  for (const int64_t end : ends) {
    if (!absl::c_linear_search(all, end)) all.push_back(end);
  }
  if (all.size() == own) return std::string(config);
  OrderedJson json = OrderedJson::parse(config.begin(), config.end());
  json[kEndField] = TokensField(all);
  return Text(json);
}

int64_t ReadTextsVocabulary(absl::string_view config) {
  const OrderedJson json = OrderedJson::parse(config.begin(), config.end());
  const auto found = json.find(kTextsField);
  return found != json.end() && found->is_number_integer()
             ? found->get<int64_t>()
             : 0;
}

std::string WithTextsVocabulary(absl::string_view config, int64_t vocabulary) {
  if (ReadTextsVocabulary(config) == vocabulary) return std::string(config);
  OrderedJson json = OrderedJson::parse(config.begin(), config.end());
  json.erase(kTextsField);
  if (vocabulary > 0) json[kTextsField] = vocabulary;
  return Text(json);
}

std::string WithDropout(absl::string_view config, double dropout) {
  OrderedJson json = OrderedJson::parse(config.begin(), config.end());
  for (const char* const key : kDropoutFields) json[key] = dropout;
  return Text(json);
}

std::string WithDtype(absl::string_view config, absl::string_view dtype) {
  OrderedJson json = OrderedJson::parse(config.begin(), config.end());
  // The older name, which newer versions read, too.
  const char* key = json.contains("dtype") ? "dtype" : "torch_dtype";
  json[key] = std::string(dtype);
  return Text(json);
}

std::string ModelType(const TransformerOptions& model) {
  return std::holds_alternative<GptOptions>(model) ? "gpt2" : "llama";
}

int64_t ContextLength(const TransformerOptions& model) {
  return std::visit([](const auto& options) { return options.context; }, model);
}

int64_t VocabularySize(const TransformerOptions& model) {
  return std::visit([](const auto& options) { return options.vocabulary; },
                    model);
}

absl::StatusOr<LayerSpecs> LayersOf(const TransformerOptions& model) {
  if (const auto* gpt = std::get_if<GptOptions>(&model)) return Gpt(*gpt);
  return Llama(std::get<LlamaOptions>(model));
}

namespace {

constexpr char kHead[] = "lm_head.weight";

StateName WithPrefix(const std::string& prefix, const std::string& stored) {
  const bool whole =
      absl::StartsWith(stored, prefix) || absl::StartsWith(stored, "lm_head.");
  return {whole ? stored : absl::StrCat(prefix, stored), ""};
}

StateName OfGpt2(const std::string& stored) {
  if (absl::EndsWith(stored, ".attn.bias") ||
      absl::EndsWith(stored, ".attn.masked_bias")) {
    return {"", "causal masks, which are computed here"};
  }
  return WithPrefix("transformer.", stored);
}

StateName OfLlama(const std::string& stored) {
  if (absl::EndsWith(stored, ".rotary_emb.inv_freq")) {
    return {"", "rotary frequencies, which are computed here"};
  }
  return WithPrefix("model.", stored);
}

bool TiesHead(const TransformerOptions& model) {
  return std::visit([](const auto& options) { return options.ties_lm_head; },
                    model);
}

}  // namespace

NameRules StateNameRules(const TransformerOptions& model) {
  const bool is_gpt = std::holds_alternative<GptOptions>(model);
  NameRules rules;
  rules.of = is_gpt ? OfGpt2 : OfLlama;
  if (TiesHead(model)) {
    rules.tied[kHead] =
        is_gpt ? "transformer.wte.weight" : "model.embed_tokens.weight";
  }
  return rules;
}

bool IsWritten(const TransformerOptions& model, const std::string& name) {
  return name != kHead || !TiesHead(model);
}

}  // namespace tandem
