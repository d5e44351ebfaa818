#include "models/lora/merged_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <c10/core/ScalarType.h>

#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

constexpr char kRank[] = "lora_rank";
constexpr char kAlpha[] = "lora_alpha";
constexpr char kDropout[] = "lora_dropout";
constexpr char kOn[] = "lora_on";
constexpr char kBase[] = "lora_base";
constexpr char kFanInFanOut[] = "lora_fan_in_fan_out";
constexpr char kEndOfA[] = "lora_A.weight";
constexpr char kEndOfB[] = "lora_B.weight";

// "a.b" of "a.b.weight"; "" of "weight".
std::string ModuleOf(absl::string_view name) {
  const size_t dot = name.rfind('.');
  return std::string(dot == absl::string_view::npos ? "" : name.substr(0, dot));
}

// Without the end, and the dot before it; nothing for a name of another kind.
std::optional<std::string> WithoutEnd(absl::string_view name,
                                      absl::string_view end) {
  if (!absl::ConsumeSuffix(&name, end)) return std::nullopt;
  if (!name.empty() && !absl::ConsumeSuffix(&name, ".")) return std::nullopt;
  return std::string(name);
}

// The tensors of one adapter.
struct Adapter {
  const StoredTensor* a = nullptr;
  const StoredTensor* b = nullptr;
  const StoredTensor* weight = nullptr;
};

std::map<std::string, Adapter> FindFactors(const StoredTensors& weights) {
  std::map<std::string, Adapter> adapters;
  for (const StoredTensor& each : weights) {
    if (const auto module = WithoutEnd(each.info.name, kEndOfA)) {
      adapters[*module].a = &each;
    } else if (const auto of_b = WithoutEnd(each.info.name, kEndOfB)) {
      adapters[*of_b].b = &each;
    }
  }
  return adapters;
}

absl::Status Wrong(const std::string& module, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the adapter of ", module, " ", why));
}

absl::Status CheckFactors(const std::string& module, const Adapter& adapter,
                          int64_t rank) {
  for (const auto& [factor, name] :
       {std::pair(adapter.a, kEndOfA), std::pair(adapter.b, kEndOfB)}) {
    if (factor == nullptr) return Wrong(module, absl::StrCat("has no ", name));
  }
  const std::vector<int64_t>& a = adapter.a->info.sizes;
  const std::vector<int64_t>& b = adapter.b->info.sizes;
  if (a.size() == 2 && b.size() == 2 && a[0] == rank && b[1] == rank) {
    return absl::OkStatus();
  }
  return Wrong(module,
               absl::StrCat("is ", Describe(adapter.a->info), " and ",
                            Describe(adapter.b->info), ", not of rank ", rank));
}

// The one weight of the module that the adapter can be of.
absl::Status FindWeight(const std::string& module, bool fan_in_fan_out,
                        const StoredTensors& weights, Adapter* adapter) {
  std::vector<int64_t> sizes = {adapter->b->info.sizes[0],
                                adapter->a->info.sizes[1]};
  if (fan_in_fan_out) std::swap(sizes[0], sizes[1]);
  for (const StoredTensor& each : weights) {
    if (ModuleOf(each.info.name) != module || each.info.sizes != sizes ||
        !absl::EndsWith(each.info.name, "weight")) {
      continue;
    }
    if (adapter->weight != nullptr) {
      return Wrong(module, absl::StrCat("fits ", adapter->weight->info.name,
                                        " and ", each.info.name));
    }
    adapter->weight = &each;
  }
  if (adapter->weight != nullptr) return absl::OkStatus();
  return Wrong(module, absl::StrCat("fits no weight of that module: expected [",
                                    absl::StrJoin(sizes, ", "), "]"));
}

absl::StatusOr<at::Tensor> Merged(const Adapter& adapter, double scaling,
                                  bool fan_in_fan_out) {
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor weight, adapter.weight->read());
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor a, adapter.a->read());
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor b, adapter.b->read());
  return CatchTorchOr([&] {
    const at::NoGradGuard no_grad;
    const auto dtype =
        c10::promoteTypes(weight.scalar_type(), c10::ScalarType::Float);
    const at::Tensor product = at::matmul(b.to(dtype), a.to(dtype)) * scaling;
    return (weight.to(dtype) + (fan_in_fan_out ? product.t() : product))
        .to(weight.scalar_type());
  });
}

// The stored tensors live as long as what reads them.
StoredTensor MergedTensor(const Adapter& found, double scaling,
                          bool fan_in_fan_out) {
  const std::vector<StoredTensor> own = {*found.a, *found.b, *found.weight};
  StoredTensor merged;
  merged.info = found.weight->info;
  merged.read = [own, scaling, fan_in_fan_out] {
    return Merged({&own[0], &own[1], &own[2]}, scaling, fan_in_fan_out);
  };
  merged.verify = [own] {
    for (const StoredTensor& each : own) TANDEM_RETURN_IF_ERROR(Verify(each));
    return absl::OkStatus();
  };
  return merged;
}

std::string Digits(double number) { return absl::StrFormat("%.17g", number); }

template <typename T, typename Parse>
absl::Status Take(const std::map<std::string, std::string>& options,
                  const char* key, Parse parse, T* value) {
  const auto found = options.find(key);
  if (found == options.end()) return absl::OkStatus();
  if (parse(found->second, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "it says ", key, "=", found->second, ", which is no number"));
}

std::string TextOf(const std::map<std::string, std::string>& options,
                   const char* key) {
  const auto found = options.find(key);
  return found == options.end() ? "" : found->second;
}

}  // namespace

std::map<std::string, std::string> LoraRecordOptions(const LoraRecord& record) {
  return {{kRank, absl::StrCat(record.rank)},
          {kAlpha, Digits(record.alpha)},
          {kDropout, Digits(record.dropout)},
          {kOn, record.on},
          {kBase, record.base},
          {kFanInFanOut, absl::StrJoin(record.fan_in_fan_out, ",")}};
}

absl::StatusOr<std::optional<LoraRecord>> ReadLoraRecord(
    const std::map<std::string, std::string>& options) {
  if (options.count(kRank) == 0) return std::nullopt;
  const auto to_integer = [](const std::string& text, int64_t* value) {
    return absl::SimpleAtoi(text, value);
  };
  const auto to_double = [](const std::string& text, double* value) {
    return absl::SimpleAtod(text, value);
  };
  LoraRecord record;
  TANDEM_RETURN_IF_ERROR(Take(options, kRank, to_integer, &record.rank));
  TANDEM_RETURN_IF_ERROR(Take(options, kAlpha, to_double, &record.alpha));
  TANDEM_RETURN_IF_ERROR(Take(options, kDropout, to_double, &record.dropout));
  record.on = TextOf(options, kOn);
  record.base = TextOf(options, kBase);
  record.fan_in_fan_out =
      absl::StrSplit(TextOf(options, kFanInFanOut), ',', absl::SkipEmpty());
  LoraOptions known;
  known.rank = record.rank;
  known.alpha = record.alpha;
  known.dropout = record.dropout;
  TANDEM_RETURN_IF_ERROR(CheckLora(known));
  return record;
}

LoraRecord MakeLoraRecord(const LoraOptions& options,
                          const std::vector<LoraTarget>& targets,
                          const std::string& base) {
  LoraRecord record;
  record.rank = options.rank;
  record.alpha = options.alpha;
  record.dropout = options.dropout;
  record.on = options.on;
  record.base = base;
  std::vector<std::string> all, transposed;
  for (const LoraTarget& each : targets) {
    all.push_back(each.module);
    if (each.layout == WeightLayout::kInOut) transposed.push_back(each.module);
  }
  record.fan_in_fan_out = NameEnds(transposed, all);
  return record;
}

bool HasEnd(absl::string_view module, const std::vector<std::string>& ends) {
  return absl::c_any_of(ends, [&](const std::string& end) {
    return module == end || absl::EndsWith(module, absl::StrCat(".", end));
  });
}

std::vector<std::string> NameEnds(const std::vector<std::string>& chosen,
                                  const std::vector<std::string>& all) {
  std::set<std::string> ends;
  const std::set<std::string> is_chosen(chosen.begin(), chosen.end());
  const auto says_others = [&](const std::string& end) {
    return absl::c_any_of(all, [&](const std::string& name) {
      return is_chosen.count(name) == 0 && HasEnd(name, {end});
    });
  };
  for (const std::string& name : chosen) {
    size_t dot = name.size();
    std::string end;
    do {
      dot = dot == 0 ? std::string::npos : name.rfind('.', dot - 1);
      end = dot == std::string::npos ? name : name.substr(dot + 1);
    } while (dot != std::string::npos && says_others(end));
    ends.insert(std::move(end));
  }
  return std::vector<std::string>(ends.begin(), ends.end());
}

absl::StatusOr<StoredTensors> MergedWeights(const StoredTensors& weights,
                                            const LoraRecord& record) {
  LoraOptions options;
  options.rank = record.rank;
  options.alpha = record.alpha;
  const double scaling = options.scaling();
  std::map<std::string, StoredTensor> merged;  // by the weight's name
  for (auto& [module, adapter] : FindFactors(weights)) {
    const bool fan_in_fan_out = HasEnd(module, record.fan_in_fan_out);
    TANDEM_RETURN_IF_ERROR(CheckFactors(module, adapter, record.rank));
    TANDEM_RETURN_IF_ERROR(
        FindWeight(module, fan_in_fan_out, weights, &adapter));
    merged[adapter.weight->info.name] =
        MergedTensor(adapter, scaling, fan_in_fan_out);
  }
  StoredTensors plain;
  for (const StoredTensor& each : weights) {
    if (IsLoraParameter(each.info.name)) continue;
    const auto found = merged.find(each.info.name);
    plain.Add(found == merged.end() ? each : found->second);
  }
  return plain;
}

absl::StatusOr<StoredTensors> PlainInferenceWeights(
    const StoredCheckpoint& checkpoint) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<LoraRecord> record,
                          ReadLoraRecord(checkpoint.progress.options));
  StoredTensors weights = InferenceWeights(checkpoint);
  if (!record) return weights;
  return MergedWeights(weights, *record);
}

}  // namespace tandem
