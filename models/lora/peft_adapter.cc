#include "models/lora/peft_adapter.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kPrefix[] = "base_model.model.";
constexpr char kWeight[] = ".weight";

// Modules of a model by what is said of them: which have an adapter, and which
// have a weight, as PEFT's target_modules tells them apart.
struct ModelModules {
  std::vector<std::string> adapted;
  std::vector<std::string> all;
};

absl::StatusOr<ModelModules> FindModules(const StoredTensors& weights) {
  ModelModules modules;
  std::set<std::string> with_weight;
  for (const StoredTensor& each : weights) {
    absl::string_view name = each.info.name;
    if (IsLoraParameter(name) || !absl::ConsumeSuffix(&name, kWeight)) continue;
    with_weight.emplace(name);
    modules.all.emplace_back(name);
  }
  for (const StoredTensor& each : weights) {
    absl::string_view name = each.info.name;
    if (!absl::ConsumeSuffix(&name, ".lora_A.weight")) continue;
    modules.adapted.emplace_back(name);
    if (with_weight.count(modules.adapted.back()) > 0) continue;
    return absl::UnimplementedError(absl::StrCat(
        "the adapter of ", name,
        " is of no weight that PEFT would adapt alone: export merged weights"));
  }
  return modules;
}

std::string ConfigText(const LoraRecord& record, const ModelModules& modules,
                       const std::string& base, bool is_language_model) {
  Json config;
  config["peft_type"] = "LORA";
  config["task_type"] = is_language_model ? Json("CAUSAL_LM") : Json();
  config["base_model_name_or_path"] = base.empty() ? Json() : Json(base);
  config["r"] = record.rank;
  config["lora_alpha"] = record.alpha;
  // PEFT's alpha is an integer, by its annotation.
  const auto whole = static_cast<int64_t>(record.alpha);
  if (static_cast<double>(whole) == record.alpha) config["lora_alpha"] = whole;
  config["lora_dropout"] = record.dropout;
  config["target_modules"] = NameEnds(modules.adapted, modules.all);
  config["fan_in_fan_out"] = !record.fan_in_fan_out.empty();
  config["bias"] = "none";
  config["inference_mode"] = true;
  return config.dump(2, ' ', /*ensure_ascii=*/false,
                     Json::error_handler_t::replace) +
         "\n";
}

}  // namespace

absl::StatusOr<PeftAdapter> MakePeftAdapter(const StoredTensors& weights,
                                            const LoraRecord& record,
                                            const std::string& base,
                                            bool is_language_model) {
  TANDEM_RETURN_IF_ERROR(MergedWeights(weights, record).status());
  TANDEM_ASSIGN_OR_RETURN(const ModelModules modules, FindModules(weights));
  PeftAdapter adapter;
  adapter.config = ConfigText(record, modules, base, is_language_model);
  for (StoredTensor each : weights) {
    if (!IsLoraParameter(each.info.name)) continue;
    each.info.name = absl::StrCat(kPrefix, each.info.name);
    adapter.tensors.Add(std::move(each));
  }
  return adapter;
}

}  // namespace tandem
