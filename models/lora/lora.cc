#include "models/lora/lora.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <regex>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/meta/shapes.h"
#include "core/model/axis/tensor_parallel.h"
#include "core/model/layer_list.h"
#include "models/layers/adaptable_linear.h"
#include "models/layers/dropout.h"
#include "models/layers/initialize.h"

namespace tandem {
namespace {

namespace nn = torch::nn;

constexpr char kA[] = "lora_A";
constexpr char kB[] = "lora_B";
constexpr char kDropout[] = "lora_dropout";

// One of the two matrices, [rows, columns]: x [..., columns] -> [..., rows].
class Factor : public nn::Module {
 public:
  explicit Factor(at::IntArrayRef sizes)
      : weight_(register_parameter("weight", at::empty(sizes))) {}

  at::Tensor forward(const at::Tensor& x) const {
    return LinearFunction(x, weight_, /*bias=*/{}, WeightLayout::kOutIn);
  }

  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_;
};

// A linear layer as it stands in a module.
struct FoundLinear {
  std::string name;  // of the module, in full
  std::shared_ptr<nn::Module> module;
  AdaptableLinear* adaptable;  // the same; null: a torch::nn::Linear
  LinearWeight weight;
  bool is_root;  // the module is not within another

  std::string weight_name() const {
    return name.empty() ? weight.name : absl::StrCat(name, ".", weight.name);
  }
};

std::string Joined(const std::string& outer, const std::string& inner) {
  return outer.empty() || inner.empty() ? outer + inner
                                        : absl::StrCat(outer, ".", inner);
}

std::vector<FoundLinear> FindLinears(const std::string& name,
                                     const std::shared_ptr<nn::Module>& root) {
  std::vector<FoundLinear> found;
  if (root == nullptr) return found;
  for (const auto& each : root->named_modules()) {
    const std::shared_ptr<nn::Module>& module = each.value();
    FoundLinear linear = {Joined(name, each.key()), module,
                          dynamic_cast<AdaptableLinear*>(module.get()),
                          LinearWeight(), module == root};
    if (linear.adaptable != nullptr) {
      linear.weight = linear.adaptable->linear_weight();
    } else if (const auto* plain =
                   dynamic_cast<const nn::LinearImpl*>(module.get())) {
      linear.weight = {"weight", plain->weight, WeightLayout::kOutIn};
    } else {
      continue;
    }
    found.push_back(std::move(linear));
  }
  return found;
}

void FillA(const InitialParameter& parameter) {
  const double bound =
      1 / std::sqrt(static_cast<double>(parameter.values.size(1)));
  parameter.values.uniform_(-bound, bound, parameter.generator);
}

void FillB(const InitialParameter& parameter) { parameter.values.zero_(); }

std::shared_ptr<Factor> MakeFactor(const FoundLinear& linear,
                                   const std::string& name,
                                   const std::vector<int64_t>& sizes,
                                   uint64_t seed, const InitialRule& rule) {
  const auto factor = std::make_shared<Factor>(sizes);
  Initialize(*factor, name, seed, rule);
  const at::Tensor& weight = linear.weight.values;
  factor->to(weight.device(), weight.scalar_type());
  factor->train(linear.module->is_training());
  return factor;
}

// The factor that the module has already (its layer is made once more), or one
// that is made.
std::shared_ptr<Factor> FactorOf(const FoundLinear& linear, const char* name,
                                 int64_t rows, int64_t columns, uint64_t seed,
                                 const InitialRule& rule) {
  const std::string full = Joined(linear.name, name);
  const std::vector<int64_t> sizes = {rows, columns};
  const at::Tensor& weight = linear.weight.values;
  for (const auto& child : linear.module->named_children()) {
    if (child.key() != name) continue;
    auto made = std::dynamic_pointer_cast<Factor>(child.value());
    TORCH_CHECK_VALUE(made != nullptr && made->weight().sizes() == sizes, full,
                      " is there already, of another shape: a layer has one "
                      "adapter");
    // One that was made without storage is no adapter of what has some.
    if (made->weight().device() == weight.device()) return made;
    return linear.module->replace_module(
        name, MakeFactor(linear, full, sizes, seed, rule));
  }
  return linear.module->register_module(
      name, MakeFactor(linear, full, sizes, seed, rule));
}

std::shared_ptr<Dropout> DropoutOf(const FoundLinear& linear, double p) {
  if (p == 0) return nullptr;
  for (const auto& child : linear.module->named_children()) {
    if (child.key() == kDropout) {
      return std::dynamic_pointer_cast<Dropout>(child.value());
    }
  }
  auto dropout = std::make_shared<Dropout>(Joined(linear.name, kDropout), p);
  dropout->train(linear.module->is_training());
  return linear.module->register_module(kDropout, dropout);
}

// Registers the adapter's modules with the linear layer's. What is small is
// scaled, the product of A.
AdaptableLinear::Addition MakeAdapter(const FoundLinear& linear, uint64_t seed,
                                      const LoraOptions& options) {
  const auto a =
      FactorOf(linear, kA, options.rank, linear.weight.inputs(), seed, FillA);
  const auto b =
      FactorOf(linear, kB, linear.weight.outputs(), options.rank, seed, FillB);
  const auto dropout = DropoutOf(linear, options.dropout);
  return [a, b, dropout, scaling = options.scaling()](const at::Tensor& x) {
    const at::Tensor low =
        a->forward(dropout == nullptr ? x : dropout->forward(x));
    return b->forward(scaling == 1 ? low : low * scaling);
  };
}

void FreezeBase(const std::shared_ptr<nn::Module>& module) {
  for (const auto& each : module->named_parameters()) {
    at::Tensor parameter = each.value();
    parameter.requires_grad_(IsLoraParameter(each.key()));
  }
}

using Pattern = std::shared_ptr<const std::regex>;

bool Matches(const Pattern& pattern, const std::string& name) {
  return std::regex_search(name, *pattern);
}

// A torch::nn::Linear has no place for an addition, but as a layer.
bool CanBeAdapted(const FoundLinear& linear, bool is_layer) {
  return linear.adaptable != nullptr || (is_layer && linear.is_root);
}

Layer AdaptedLayer(Layer layer, uint64_t seed, const LoraOptions& options,
                   const Pattern& pattern) {
  if (layer.module == nullptr) return layer;
  TORCH_CHECK_VALUE(TensorParallelScope::Current() == nullptr, "layer ",
                    layer.name,
                    " is divided over ranks by tensor parallelism, which does "
                    "not go with adapters: leave one of the two out");
  for (const FoundLinear& linear : FindLinears(layer.name, layer.module)) {
    if (!Matches(pattern, linear.weight_name())) continue;
    const AdaptableLinear::Addition addition =
        MakeAdapter(linear, seed, options);
    if (linear.adaptable != nullptr) {
      linear.adaptable->set_addition(addition);
    } else {
      layer.forward = [forward = layer.forward, addition](const at::Tensor& x) {
        return forward(x) + addition(x);
      };
    }
  }
  FreezeBase(layer.module);
  return layer;
}

absl::Status Refused(const LoraOptions& options, const std::string& name,
                     const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("lora_on=", options.on, " matches ", name, ", ", why));
}

absl::Status CheckCanBeAdapted(const FoundLinear& linear,
                               const LayerLinks& links, bool is_layer,
                               const LoraOptions& options) {
  if (absl::c_linear_search(links.stash, linear.weight_name())) {
    return Refused(options, linear.weight_name(),
                   "which the loss takes, and multiplies with itself, in "
                   "chunks, without an adapter: leave it out");
  }
  if (CanBeAdapted(linear, is_layer)) return absl::OkStatus();
  return Refused(
      options, linear.weight_name(),
      "which is of a torch::nn::Linear inside of another module, to whose "
      "output nothing can be added: make it a tandem::Linear "
      "(models/layers/basic_modules.h)");
}

absl::Status NothingMatches(const LoraOptions& options,
                            const std::vector<std::string>& names) {
  return absl::InvalidArgumentError(absl::StrCat(
      "lora_on=", options.on, " matches no linear weight of the model, which ",
      names.empty() ? "has none" : absl::StrCat("has ", ShortList(names))));
}

absl::Status CheckTies(const LayerSpec& spec, const LoraOptions& options,
                       const Pattern& pattern) {
  for (const auto& [own, other] : spec.links.ties) {
    const std::string name = absl::StrCat(spec.name, ".", own);
    if (!Matches(pattern, name)) continue;
    return Refused(options, name,
                   absl::StrCat("which is tied to ", other,
                                ": an adapter could not be merged into one of "
                                "the two alone; leave it out"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsLoraParameter(absl::string_view name) {
  for (const char* factor : {kA, kB}) {
    const std::string own = absl::StrCat(factor, ".weight");
    if (name == own || absl::EndsWith(name, absl::StrCat(".", own))) {
      return true;
    }
  }
  return false;
}

absl::Status CheckLora(const LoraOptions& options) {
  if (options.rank < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("lora_rank=", options.rank, ": expected 1 or more"));
  }
  if (!std::isfinite(options.alpha)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lora_alpha=", options.alpha, ": expected a finite number"));
  }
  if (!(options.dropout >= 0 && options.dropout <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("lora_dropout=", options.dropout, ": expected 0 to 1"));
  }
  try {
    const std::regex pattern(options.on);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lora_on=", options.on,
        ": not a regular expression (ECMAScript's): ", error.what()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LoraTarget>> LoraTargets(
    const LayerSpecs& specs, const LoraOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckLora(options));
  const auto pattern = std::make_shared<const std::regex>(options.on);
  std::vector<LoraTarget> targets;
  std::vector<std::string> names;
  const MetaScope no_storage;
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers,
                          MakeModelLayers(specs, /*seed=*/0));
  for (size_t i = 0; i < layers.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(CheckTies(specs[i], options, pattern));
    const bool is_layer = !layers[i].links.has_skips();
    for (const FoundLinear& linear :
         FindLinears(layers[i].name, layers[i].module)) {
      const std::string name = linear.weight_name();
      if (CanBeAdapted(linear, is_layer)) names.push_back(name);
      if (!Matches(pattern, name)) continue;
      TANDEM_RETURN_IF_ERROR(
          CheckCanBeAdapted(linear, specs[i].links, is_layer, options));
      targets.push_back({name, linear.name, linear.weight.layout,
                         linear.weight.inputs(), linear.weight.outputs()});
    }
  }
  if (targets.empty()) return NothingMatches(options, names);
  return targets;
}

absl::StatusOr<LayerSpecs> WithLora(LayerSpecs specs,
                                    const LoraOptions& options) {
  TANDEM_RETURN_IF_ERROR(LoraTargets(specs, options).status());
  const auto pattern = std::make_shared<const std::regex>(options.on);
  for (LayerSpec& spec : specs) {
    if (spec.make) {
      spec.make = [make = spec.make, options, pattern](uint64_t seed) {
        return AdaptedLayer(make(seed), seed, options, pattern);
      };
    }
    if (spec.make_tied) {
      spec.make_tied = [make = spec.make_tied, options, pattern](
                           uint64_t seed, const NamedTensors& shared) {
        return AdaptedLayer(make(seed, shared), seed, options, pattern);
      };
    }
  }
  return specs;
}

absl::Status AddLora(const std::shared_ptr<nn::Module>& module, uint64_t seed,
                     const LoraOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckLora(options));
  const auto pattern = std::make_shared<const std::regex>(options.on);
  std::vector<FoundLinear> matched;
  std::vector<std::string> names;
  for (FoundLinear& linear : FindLinears(/*name=*/"", module)) {
    const std::string name = linear.weight_name();
    if (CanBeAdapted(linear, /*is_layer=*/false)) names.push_back(name);
    if (!Matches(pattern, name)) continue;
    TANDEM_RETURN_IF_ERROR(
        CheckCanBeAdapted(linear, LayerLinks(), /*is_layer=*/false, options));
    matched.push_back(std::move(linear));
  }
  if (matched.empty()) return NothingMatches(options, names);
  return CatchTorch([&] {
    for (const FoundLinear& linear : matched) {
      linear.adaptable->set_addition(MakeAdapter(linear, seed, options));
    }
    FreezeBase(module);
  });
}

}  // namespace tandem
