#include "core/weights/load_plan.h"

#include <ATen/Tensor.h>
#include <ATen/ops/equal.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"

namespace tandem {
namespace {

bool IsAllowed(const std::string& name, const NameList& patterns) {
  return std::any_of(
      patterns.begin(), patterns.end(), [&](const std::string& pattern) {
        return fnmatch(pattern.c_str(), name.c_str(), /*flags=*/0) == 0;
      });
}

// A part of a name, at any depth, and one before all names.
constexpr char kCompiled[] = "_orig_mod";
constexpr char kReplicated[] = "module.";

std::string WithoutCompiled(const std::string& name) {
  std::vector<std::string> parts = absl::StrSplit(name, '.');
  parts.erase(std::remove(parts.begin(), parts.end(), kCompiled), parts.end());
  return absl::StrJoin(parts, ".");
}

bool HasPrefix(const std::string& name) {
  return absl::StartsWith(name, kReplicated);
}

bool HasCompiledPart(const std::string& name) {
  return WithoutCompiled(name) != name;
}

bool AnyName(const std::vector<TensorInfo>& model,
             bool (*is_so)(const std::string& name)) {
  return std::any_of(
      model.begin(), model.end(),
      [is_so](const TensorInfo& each) { return is_so(each.name); });
}

// The names of `stored`, as they were before PyTorch wrapped the model, unless
// the model has such names itself.
NameList Unwrapped(const StoredTensors& stored,
                   const std::vector<TensorInfo>& model, NameList* wrappers) {
  NameList names;
  const bool may_be_compiled = !AnyName(model, HasCompiledPart);
  bool was_compiled = false;
  for (const StoredTensor& each : stored) {
    names.push_back(may_be_compiled ? WithoutCompiled(each.info.name)
                                    : each.info.name);
    was_compiled = was_compiled || names.back() != each.info.name;
  }
  if (was_compiled) wrappers->push_back(absl::StrCat(kCompiled, "."));
  if (AnyName(model, HasPrefix) ||
      !std::all_of(names.begin(), names.end(), HasPrefix)) {
    return names;
  }
  if (!names.empty()) wrappers->push_back(kReplicated);
  for (std::string& each : names) each.erase(0, sizeof(kReplicated) - 1);
  return names;
}

// By the model's names.
using Sources = std::map<std::string, const StoredTensor*>;

absl::StatusOr<Sources> TakeNames(const StoredTensors& stored,
                                  const NameList& unwrapped,
                                  const NameRules& rules, LoadPlan* plan) {
  Sources sources;
  auto next = unwrapped.begin();
  for (const StoredTensor& each : stored) {
    const std::string& name = each.info.name;
    const std::string& renamed = *next++;
    const StateName is = rules.of ? rules.of(renamed) : StateName{renamed, ""};
    if (!is.left_out.empty()) {
      plan->by_rule[is.left_out].push_back(name);
      continue;
    }
    const auto [other, is_new] = sources.emplace(is.name, &each);
    if (is_new) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensors ", other->second->info.name, " and ", name,
                     " are both ", is.name, " of the model"));
  }
  return sources;
}

// Both names of a tied weight have one source.
void ShareTied(const NameRules& rules, Sources* sources, LoadPlan* plan) {
  for (const auto& [copy, first] : rules.tied) {
    const auto own = sources->find(copy);
    const auto shared = sources->find(first);
    if (shared == sources->end()) {
      if (own != sources->end()) sources->emplace(first, own->second);
      continue;
    }
    if (own != sources->end()) {
      plan->by_rule[absl::StrCat("tied to ", first)].push_back(
          own->second->info.name);
      plan->tied.push_back({*shared->second, *own->second});
    }
    (*sources)[copy] = shared->second;
  }
}

StoredTensor Renamed(const StoredTensor& tensor, const std::string& name) {
  StoredTensor renamed = tensor;
  renamed.info.name = name;
  return renamed;
}

// Whether the shape is the transposed one that other makers' linear layers
// have.
bool AreTransposed(const std::vector<int64_t>& one,
                   const std::vector<int64_t>& other) {
  return one.size() == 2 &&
         std::equal(one.rbegin(), one.rend(), other.begin(), other.end());
}

// What stands in the way.
struct Obstacles {
  NameList missing, unexpected, shapes;
};

bool IsCopyOfMissing(const std::string& name, const NameRules& rules,
                     const Sources& sources) {
  const auto tie = rules.tied.find(name);
  return tie != rules.tied.end() && sources.count(tie->second) == 0;
}

void TakeModel(const std::vector<TensorInfo>& model, const NameRules& rules,
               const LoadAllowances& allowances, const Sources& sources,
               LoadPlan* plan, Obstacles* obstacles) {
  for (const TensorInfo& wanted : model) {
    const auto source = sources.find(wanted.name);
    if (source == sources.end()) {
      const bool allowed = IsAllowed(wanted.name, allowances.missing) ||
                           IsCopyOfMissing(wanted.name, rules, sources);
      (allowed ? plan->missing : obstacles->missing).push_back(wanted.name);
      continue;
    }
    const TensorInfo& given = source->second->info;
    if (given.sizes == wanted.sizes) {
      plan->tensors.Add(Renamed(*source->second, wanted.name));
    } else if (IsAllowed(wanted.name, allowances.missing)) {
      plan->reshaped.push_back(wanted.name);
    } else {
      obstacles->shapes.push_back(absl::StrCat(
          wanted.name, " is [", absl::StrJoin(given.sizes, ", "),
          "], expected [", absl::StrJoin(wanted.sizes, ", "), "]",
          AreTransposed(given.sizes, wanted.sizes) ? " (transposed)" : ""));
    }
  }
}

void TakeRest(const std::vector<TensorInfo>& model,
              const LoadAllowances& allowances, const Sources& sources,
              LoadPlan* plan, Obstacles* obstacles) {
  std::set<std::string> known;
  for (const TensorInfo& each : model) known.insert(each.name);
  for (const auto& [name, source] : sources) {
    if (known.count(name) > 0) continue;
    const std::string& stored = source->info.name;
    const bool allowed = IsAllowed(stored, allowances.unexpected);
    (allowed ? plan->unexpected : obstacles->unexpected).push_back(stored);
  }
}

// What all that is left over has in front of a name that is missing, as the
// state of a module has that is wrapped in one's own ("net."); "": nothing.
std::string CommonPrefix(const Obstacles& obstacles) {
  const std::set<std::string> missing(obstacles.missing.begin(),
                                      obstacles.missing.end());
  const NameList& left_over = obstacles.unexpected;
  const auto is_common = [&](const std::string& prefix) {
    return std::all_of(left_over.begin(), left_over.end(),
                       [&](const std::string& each) {
                         return absl::StartsWith(each, prefix) &&
                                missing.count(each.substr(prefix.size())) > 0;
                       });
  };
  for (const std::string& name : missing) {
    if (left_over.empty() || !absl::EndsWith(left_over.front(), name)) continue;
    const std::string prefix =
        left_over.front().substr(0, left_over.front().size() - name.size());
    if (is_common(prefix)) return prefix;
  }
  return "";
}

absl::Status ObstaclesError(const Obstacles& obstacles) {
  std::vector<std::string> errors;
  if (!obstacles.missing.empty()) {
    errors.push_back(absl::StrCat("missing: ", ShortList(obstacles.missing)));
  }
  if (!obstacles.unexpected.empty()) {
    errors.push_back(
        absl::StrCat("left over: ", ShortList(obstacles.unexpected)));
  }
  if (!obstacles.shapes.empty()) {
    errors.push_back(
        absl::StrCat("of another shape: ", ShortList(obstacles.shapes)));
  }
  if (errors.empty()) return absl::OkStatus();
  const std::string prefix = CommonPrefix(obstacles);
  return absl::InvalidArgumentError(absl::StrCat(
      "the tensors are not the model's: ", absl::StrJoin(errors, "; "),
      prefix.empty() ? ""
                     : absl::StrCat("; they would be without the '", prefix,
                                    "' in front of their names: save them "
                                    "again without it")));
}

}  // namespace

absl::StatusOr<LoadPlan> PlanLoading(const StoredTensors& stored,
                                     const std::vector<TensorInfo>& model,
                                     const NameRules& rules,
                                     const LoadAllowances& allowances) {
  LoadPlan plan;
  const NameList names = Unwrapped(stored, model, &plan.wrappers);
  TANDEM_ASSIGN_OR_RETURN(Sources sources,
                          TakeNames(stored, names, rules, &plan));
  ShareTied(rules, &sources, &plan);
  Obstacles obstacles;
  TakeModel(model, rules, allowances, sources, &plan, &obstacles);
  TakeRest(model, allowances, sources, &plan, &obstacles);
  TANDEM_RETURN_IF_ERROR(ObstaclesError(obstacles));
  return plan;
}

absl::Status CheckTied(const LoadPlan& plan) {
  for (const TiedPair& each : plan.tied) {
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor first, each.first.read());
    TANDEM_ASSIGN_OR_RETURN(const at::Tensor copy, each.copy.read());
    TANDEM_ASSIGN_OR_RETURN(
        const bool is_same,
        CatchTorchOr(
            [&] { return at::equal(first, copy.to(first.scalar_type())); },
            each.copy.info.name));
    if (is_same) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        each.copy.info.name, " is to be the same as ", each.first.info.name,
        ", to which the model ties it, but has other values: take a model that "
        "does not tie them (\"tie_word_embeddings\": false in a config.json)"));
  }
  return absl::OkStatus();
}

std::string Describe(const LoadPlan& plan) {
  std::string text = absl::StrCat(plan.tensors.size(), " tensors loaded");
  if (!plan.wrappers.empty()) {
    absl::StrAppend(&text, "; names without ",
                    absl::StrJoin(plan.wrappers, " and "));
  }
  for (const auto& [why, names] : plan.by_rule) {
    absl::StrAppend(&text, "; ", names.size(), " not loaded, ", why, ": ",
                    ShortList(names));
  }
  if (!plan.missing.empty()) {
    absl::StrAppend(&text, "; missing, as allowed: ", ShortList(plan.missing));
  }
  if (!plan.reshaped.empty()) {
    absl::StrAppend(&text, "; of another shape, as allowed, and not loaded: ",
                    ShortList(plan.reshaped));
  }
  if (!plan.unexpected.empty()) {
    absl::StrAppend(&text,
                    "; left over, as allowed: ", ShortList(plan.unexpected));
  }
  return text;
}

}  // namespace tandem
