#include "parallel/partition/part_costs.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tandem {
namespace {

std::vector<std::vector<int64_t>> MostEvaluated(
    const std::vector<LayerCost>& layers) {
  std::vector<std::vector<int64_t>> most(1);
  for (const LayerCost& each : layers) {
    most[0].push_back(each.evaluation_bytes);
  }
  for (size_t width = 1; 2 * width <= layers.size(); width *= 2) {
    const std::vector<int64_t>& half = most.back();
    std::vector<int64_t> whole;
    for (size_t i = 0; i + 2 * width <= layers.size(); ++i) {
      whole.push_back(std::max(half[i], half[i + width]));
    }
    most.push_back(std::move(whole));
  }
  return most;
}

}  // namespace

PartCosts::PartCosts(const std::vector<LayerCost>& layers,
                     const BalanceOptions& options)
    : layers_(layers),
      options_(options),
      sums_(1),
      evaluated_(MostEvaluated(layers)) {
  for (const LayerCost& each : layers) {
    Sum sum = sums_.back();
    sum.time += each.forward + each.backward;
    sum.state += each.state_bytes;
    sum.activations += each.activation_bytes;
    sum.gathered += each.gathered_bytes;
    sums_.push_back(sum);
  }
  for (size_t device = 0; device < options.devices.size(); ++device) {
    for (const int part : options.devices[device].parts) {
      const auto index = static_cast<size_t>(part);
      device_of_.resize(std::max(device_of_.size(), index + 1));
      device_of_[index] = device;
    }
  }
}

// Behind the layer, one way.
double PartCosts::Message(size_t layer) const {
  return options_.seconds_per_message +
         options_.seconds_per_byte *
             static_cast<double>(layers_[layer].output_bytes);
}

// To the next part: neighbours on one device send nothing.
bool PartCosts::IsSent(size_t part) const {
  return part + 1 >= device_of_.size() ||
         device_of_[part] != device_of_[part + 1];
}

double PartCosts::Time(size_t begin, size_t end, size_t part) const {
  double time = sums_[end].time - sums_[begin].time;
  if (begin > 0 && IsSent(part - 1)) time += Message(begin - 1);
  if (end < layers_.size() && IsSent(part)) time += Message(end - 1);
  return time;
}

// One of the part's units (MakeLayerUnits of
// parallel/fully_sharded/layer_units.h) computes, and the next is gathered
// ahead.
int64_t PartCosts::Gathered(const LayerRange& part) const {
  const auto begin = static_cast<size_t>(part.begin);
  const auto end = static_cast<size_t>(part.end);
  if (sums_[end].gathered == sums_[begin].gathered) return 0;
  int64_t most = 0;
  int64_t before = 0;
  LayerCost unit;
  for (size_t i = begin; i < end; ++i) {
    unit.gathered_bytes += layers_[i].gathered_bytes;
    unit.gathered_numbers += layers_[i].gathered_numbers;
    const int64_t least = std::max<int64_t>(options_.gathered_together, 1);
    if (unit.gathered_numbers < least && i + 1 < end) continue;
    most = std::max(most, before + unit.gathered_bytes);
    before = unit.gathered_bytes;
    unit = LayerCost();
  }
  return most;
}

int64_t PartCosts::State(const LayerRange& part) const {
  return sums_[static_cast<size_t>(part.end)].state -
         sums_[static_cast<size_t>(part.begin)].state + Gathered(part);
}

int64_t PartCosts::Kept(const LayerRange& part, const PartAlive& alive) const {
  const auto begin = static_cast<size_t>(part.begin);
  return alive.inputs * layers_[begin].input_bytes +
         alive.activations * (sums_[static_cast<size_t>(part.end)].activations -
                              sums_[begin].activations);
}

int64_t PartCosts::Evaluated(const LayerRange& part) const {
  const auto begin = static_cast<size_t>(part.begin);
  const auto end = static_cast<size_t>(part.end);
  const auto k = static_cast<size_t>(std::bit_width(end - begin)) - 1;
  return std::max(evaluated_[k][begin], evaluated_[k][end - (size_t{1} << k)]);
}

int64_t PartCosts::Bytes(size_t begin, size_t end, size_t part) const {
  const LayerRange range = {static_cast<int64_t>(begin),
                            static_cast<int64_t>(end)};
  int64_t kept = 0;
  if (options_.devices.empty()) {
    kept = Kept(range, PartAlive());
  } else {
    for (const auto& moment : options_.devices[device_of_[part]].moments) {
      kept = std::max(kept, Kept(range, moment.front()));
    }
  }
  return State(range) + std::max(kept, Evaluated(range));
}

std::vector<double> PartCosts::PartTimes(const Cuts& cuts) const {
  std::vector<double> times;
  for (const LayerRange& part :
       LayerRanges(cuts, static_cast<int64_t>(layers_.size()))) {
    times.push_back(Time(static_cast<size_t>(part.begin),
                         static_cast<size_t>(part.end), times.size()));
  }
  return times;
}

std::vector<double> PartCosts::DeviceTimes(const Cuts& cuts) const {
  const std::vector<double> parts = PartTimes(cuts);
  std::vector<double> times(options_.devices.size(), 0);
  for (size_t i = 0; i < parts.size(); ++i) times[device_of_[i]] += parts[i];
  return times;
}

std::vector<int64_t> PartCosts::DeviceBytes(const Cuts& cuts) const {
  const auto parts = LayerRanges(cuts, static_cast<int64_t>(layers_.size()));
  std::vector<int64_t> bytes;
  for (const BalanceDevice& device : options_.devices) {
    int64_t state = 0;
    int64_t most = 0;
    for (const int part : device.parts) {
      state += State(parts[static_cast<size_t>(part)]);
      most = std::max(most, Evaluated(parts[static_cast<size_t>(part)]));
    }
    for (const auto& moment : device.moments) {
      int64_t kept = 0;
      for (size_t i = 0; i < moment.size(); ++i) {
        kept += Kept(parts[static_cast<size_t>(device.parts[i])], moment[i]);
      }
      most = std::max(most, kept);
    }
    bytes.push_back(state + most);
  }
  return bytes;
}

}  // namespace tandem
