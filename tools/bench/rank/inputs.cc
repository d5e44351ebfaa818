#include "tools/bench/bench_inputs.h"

#include <ATen/ops/empty.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/safetensors.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "models/registry.h"

namespace tandem {
namespace {

constexpr uint64_t kSeed = 0;
constexpr char kState[] = "state.";

std::string BatchPrefix(int rank, int index) {
  return absl::StrCat("batch.", rank, ".", index, ".");
}

at::Tensor RandomClasses(std::vector<int64_t> shape, int64_t classes,
                         const std::string& name) {
  return at::empty(shape, at::kLong)
      .random_(classes, GeneratorFor(kSeed, name));
}

void AppendBatch(const BenchCase& bench, const std::string& prefix,
                 NamedTensors& tensors) {
  std::vector<int64_t> shape = bench.input_shape;
  shape.insert(shape.begin(), bench.batch_size);
  const std::string inputs = prefix + "inputs";
  const std::string targets = prefix + "targets";
  if (bench.tokens) {
    tensors.emplace_back(inputs, RandomClasses(shape, bench.classes, inputs));
    tensors.emplace_back(targets, RandomClasses(shape, bench.classes, targets));
    return;
  }
  tensors.emplace_back(
      inputs, at::empty(shape).normal_(0, 1, GeneratorFor(kSeed, inputs)));
  tensors.emplace_back(
      targets, RandomClasses({bench.batch_size}, bench.classes, targets));
}

}  // namespace

absl::StatusOr<LayerSpecs> MakeCaseSpecs(const BenchCase& bench) {
  ModelOptions model;
  model.name = bench.name;
  model.input_shape = bench.input_shape;
  model.classes = bench.classes;
  model.tokens = bench.tokens;
  return MakeModel(model);
}

absl::StatusOr<LayerList> MakeCaseLayers(const BenchCase& bench) {
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs, MakeCaseSpecs(bench));
  return MakeLayers(specs, kSeed);
}

absl::Status WriteBenchInputs(const BenchCase& bench, int ranks,
                              const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const LayerList layers, MakeCaseLayers(bench));
  NamedTensors tensors;
  for (const auto& all : {NamedParameters(layers), NamedBuffers(layers)}) {
    for (const auto& [name, tensor] : all) {
      tensors.emplace_back(kState + name, tensor.detach());
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < kBatchesPerRank; ++i) {
      AppendBatch(bench, BatchPrefix(rank, i), tensors);
    }
  }
  return WriteSafetensors(path, tensors);
}

absl::StatusOr<BenchInputs> ReadBenchInputs(const std::string& path, int rank) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                          SafetensorsReader::Open(path));
  BenchInputs result;
  for (const SafetensorsEntry& entry : reader->entries()) {
    absl::string_view name = entry.name;
    if (!absl::ConsumePrefix(&name, kState)) continue;
    TANDEM_ASSIGN_OR_RETURN(at::Tensor tensor, reader->Read(entry));
    result.state.emplace_back(std::string(name), std::move(tensor));
  }
  for (int i = 0; i < kBatchesPerRank; ++i) {
    const std::string prefix = BatchPrefix(rank, i);
    const SafetensorsEntry* inputs = reader->Find(prefix + "inputs");
    const SafetensorsEntry* targets = reader->Find(prefix + "targets");
    if (inputs == nullptr || targets == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(path, " has no batch ", i, " of rank ", rank));
    }
    Batch batch;
    TANDEM_ASSIGN_OR_RETURN(batch.inputs, reader->Read(*inputs));
    TANDEM_ASSIGN_OR_RETURN(batch.targets, reader->Read(*targets));
    batch.size = batch.inputs.size(0);
    result.batches.push_back(std::move(batch));
  }
  return result;
}

}  // namespace tandem
