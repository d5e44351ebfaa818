#include "tools/trainer/job/strategy_name.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// What a strategy can run: how many replicas, and what each of them is on.
struct Needs {
  const char* name;
  bool one_replica;
  bool several_replicas;
  bool one_device;
  bool several_devices;  // of one rank
  bool several_ranks;
  const char* text;
};

constexpr Needs kStrategies[] = {
    {"single", true, false, true, false, false, "one replica on one device"},
    {"ddp", true, true, true, true, false, "replicas of one rank each"},
    {"data_parallel", true, true, false, true, false,
     "replicas on the several devices of each rank"},
    {"model_parallel", true, false, false, true, false,
     "one replica on several devices of one rank"},
    {"pipeline", true, false, false, true, true,
     "one replica on several devices"},
    {"hybrid", true, true, true, true, true, "any replicas"},
    {"parameter_server", true, true, true, true, false,
     "workers of one rank each, beside servers"},
};

std::string KnownStrategies() {
  std::string names;
  for (const Needs& strategy : kStrategies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", strategy.name);
  }
  return names;
}

std::string DefaultStrategy(const Mesh& mesh, int devices_per_rank) {
  if (mesh.pipe() > 1) return mesh.data() > 1 ? "hybrid" : "pipeline";
  if (mesh.data() > 1) return "ddp";
  return devices_per_rank > 1 ? "model_parallel" : "single";
}

bool Fits(const Needs& strategy, const Mesh& mesh, int devices_per_rank) {
  if (mesh.data() > 1 ? !strategy.several_replicas : !strategy.one_replica) {
    return false;
  }
  if (mesh.pipe() > 1) return strategy.several_ranks;
  return devices_per_rank > 1 ? strategy.several_devices : strategy.one_device;
}

}  // namespace

absl::StatusOr<std::string> StrategyFor(const Mesh& mesh, int devices_per_rank,
                                        absl::string_view requested) {
  if (devices_per_rank < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a rank needs at least one device, but was given ", devices_per_rank));
  }
  const std::string fitting = DefaultStrategy(mesh, devices_per_rank);
  if (requested.empty() || requested == "auto") return fitting;
  for (const Needs& strategy : kStrategies) {
    if (requested != strategy.name) continue;
    if (Fits(strategy, mesh, devices_per_rank)) return std::string(requested);
    return absl::InvalidArgumentError(absl::StrCat(
        "the strategy ", requested, " runs ", strategy.text, ", but the mesh (",
        mesh.ToString(), ", devices per rank ", devices_per_rank, ") has ",
        mesh.data(), " replica(s) of ", mesh.pipe(), " rank(s) with ",
        devices_per_rank, " device(s): use ", fitting,
        ", or leave the choice to auto and change the mesh"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the strategy ", requested,
      " is not known; known are: ", KnownStrategies(), " (or auto)"));
}

}  // namespace tandem
