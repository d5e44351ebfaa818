#include "tools/bench/rank/inputs.h"

#include <ATen/ops/empty.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/safetensors.h"
#include "core/model/layer_list.h"
#include "core/random/random.h"
#include "models/registry.h"
#include "parallel/pipeline/microbatches.h"

namespace tandem {
namespace {

constexpr char kState[] = "state.";

std::string BatchName(int index) { return absl::StrCat("batch.", index, "."); }

at::Tensor RandomClasses(const std::vector<int64_t>& shape, int64_t classes,
                         const std::string& name) {
  return at::empty(shape, at::kLong)
      .random_(classes, GeneratorFor(kInputsSeed, name));
}

absl::StatusOr<Batch> ReadBatch(SafetensorsReader& reader, int index) {
  const std::string name = BatchName(index);
  const SafetensorsEntry* inputs = reader.Find(name + "inputs");
  const SafetensorsEntry* targets = reader.Find(name + "targets");
  if (inputs == nullptr || targets == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("the file of inputs has no batch ", index));
  }
  Batch batch;
  TANDEM_ASSIGN_OR_RETURN(batch.inputs, reader.Read(*inputs));
  TANDEM_ASSIGN_OR_RETURN(batch.targets, reader.Read(*targets));
  batch.size = batch.inputs.size(0);
  return batch;
}

}  // namespace

absl::StatusOr<LayerSpecs> MakeSpecs(const Workload& workload) {
  ModelOptions model;
  model.name = workload.model;
  model.input_shape = workload.input_shape;
  model.classes = workload.classes;
  model.tokens = workload.tokens;
  return MakeModel(model);
}

Batch MakeBatch(const Workload& workload, const std::string& name) {
  std::vector<int64_t> shape = workload.input_shape;
  shape.insert(shape.begin(), workload.batch_size);
  const std::string inputs = name + "inputs";
  const std::string targets = name + "targets";
  if (workload.tokens) {
    return {RandomClasses(shape, workload.classes, inputs),
            RandomClasses(shape, workload.classes, targets),
            workload.batch_size};
  }
  return {at::empty(shape).normal_(0, 1, GeneratorFor(kInputsSeed, inputs)),
          RandomClasses({workload.batch_size}, workload.classes, targets),
          workload.batch_size};
}

absl::Status WriteInputsFile(const Workload& workload,
                             const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const LayerSpecs specs, MakeSpecs(workload));
  const LayerList layers = MakeLayers(specs, kInputsSeed);
  NamedTensors tensors;
  for (const auto& all : {NamedParameters(layers), NamedBuffers(layers)}) {
    for (const auto& [name, tensor] : all) {
      tensors.emplace_back(kState + name, tensor.detach());
    }
  }
  for (int i = 0; i < kBatches; ++i) {
    Batch batch = MakeBatch(workload, BatchName(i));
    tensors.emplace_back(BatchName(i) + "inputs", std::move(batch.inputs));
    tensors.emplace_back(BatchName(i) + "targets", std::move(batch.targets));
  }
  return WriteSafetensors(path, tensors);
}

absl::StatusOr<Inputs> ReadInputsFile(const Workload& workload,
                                      const std::string& path, int replica,
                                      int replicas) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsReader> reader,
                          SafetensorsReader::Open(path));
  Inputs result;
  result.workload = workload;
  for (const SafetensorsEntry& entry : reader->entries()) {
    absl::string_view name = entry.name;
    if (!absl::ConsumePrefix(&name, kState)) continue;
    TANDEM_ASSIGN_OR_RETURN(at::Tensor tensor, reader->Read(entry));
    result.state.emplace_back(std::string(name), std::move(tensor));
  }
  for (int i = 0; i < kBatches; ++i) {
    TANDEM_ASSIGN_OR_RETURN(const Batch whole, ReadBatch(*reader, i));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<Batch> parts,
                            SplitBatch(whole, EvenSizes(whole.size, replicas)));
    result.batches.push_back(parts[static_cast<size_t>(replica)]);
  }
  return result;
}

}  // namespace tandem
