#include "tools/bench/gpt/formula.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/transformer/sizes.h"
#include "models/transformer/training_memory.h"
#include "parallel/balance/cut.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/schedules.h"
#include "parallel/schedule/validator.h"

namespace tandem {
namespace {

// PyTorch's name for two of ours.
std::string OurName(const Setting& setting) {
  if (setting.schedule != "zero_bubble") return setting.schedule;
  return setting.chunks == 1 ? "zb_h1" : "zb_v";
}

DeviceWork WorkOf(const Workload& workload, const Layout& layout,
                  const Setting& setting) {
  DeviceWork work;
  // The greater ones where they do not divide.
  const int64_t parts = int64_t{layout.replicas} * setting.microbatches;
  work.samples = (workload.batch_size + parts - 1) / parts;
  work.tokens = workload.input_shape.front();
  work.element_bytes = workload.dtype == "fp32" ? 4 : 2;
  work.optimizer_bytes = workload.optimizer == "adamw" ? 8 : 4;
  return work;
}

// Layers of one stage, of `held` activations of the device's `chunks` stages,
// which hold their microbatches alike.
int64_t BytesOfStage(const GptOptions& model, DeviceWork work,
                     const LayerRange& layers, int held, int chunks) {
  work.first_layer = layers.begin;
  work.end_layer = layers.end;
  const TrainingMemory memory = MemoryOf(model, work);
  return memory.total() + memory.activations * (held - chunks) / chunks;
}

std::vector<int64_t> BytesOfDevices(const GptOptions& model,
                                    const DeviceWork& work,
                                    const Schedule& schedule,
                                    const std::vector<int>& held, int chunks) {
  // Embeddings, blocks, norm and head.
  const int64_t layers = model.layers + 4;
  const std::vector<LayerRange> stages =
      PartsOf(*UniformCuts(layers, schedule.stages), layers);
  const std::vector<int> device_of = DevicesOfStages(schedule);
  std::vector<int64_t> bytes(held.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto device = static_cast<size_t>(device_of[stage]);
    bytes[device] +=
        BytesOfStage(model, work, stages[stage], held[device], chunks);
  }
  return bytes;
}

}  // namespace

double FormulaMib(const Workload& workload, const Layout& layout,
                  const Setting& setting) {
  const std::optional<GptOptions> model = GptSize(workload.model);
  if (!model) return 0;
  const absl::StatusOr<Schedule> schedule = MakeSchedule(
      OurName(setting),
      {layout.devices_of_replica(), setting.chunks, setting.microbatches});
  if (!schedule.ok()) return 0;
  const std::vector<int64_t> bytes = BytesOfDevices(
      *model, WorkOf(workload, layout, setting), *schedule,
      ValidateSchedule(*schedule)->peak_activations, setting.chunks);
  int64_t most = 0;
  for (int rank = 0; rank < layout.pipe; ++rank) {
    int64_t all = 0;
    for (int i = 0; i < layout.devices; ++i) {
      all += bytes[static_cast<size_t>(rank * layout.devices + i)];
    }
    most = std::max(most, all);
  }
  return static_cast<double>(most) / (1 << 20);
}

}  // namespace tandem
