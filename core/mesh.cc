#include "core/mesh.h"

#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

// What a strategy can run: how many replicas, and how many devices in each.
struct Needs {
  const char* name;
  bool one_replica;
  bool several_replicas;
  bool one_device;
  bool several_devices;
  const char* text;
};

constexpr Needs kStrategies[] = {
    {"single", true, false, true, false, "one replica on one device"},
    {"ddp", true, true, true, false, "replicas of one device each"},
    {"model_parallel", true, false, false, true,
     "one replica on several devices"},
    {"pipeline", true, false, false, true, "one replica on several devices"},
    {"hybrid", true, true, true, true, "any replicas"},
};

std::string KnownStrategies() {
  std::string names;
  for (const Needs& strategy : kStrategies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", strategy.name);
  }
  return names;
}

std::string DefaultStrategy(int replicas, int devices) {
  if (devices > 1) return replicas > 1 ? "hybrid" : "model_parallel";
  return replicas > 1 ? "ddp" : "single";
}

bool Fits(const Needs& strategy, int replicas, int devices) {
  return (replicas > 1 ? strategy.several_replicas : strategy.one_replica) &&
         (devices > 1 ? strategy.several_devices : strategy.one_device);
}

}  // namespace

absl::StatusOr<Mesh> Mesh::Create(int world_size, int pipe) {
  if (world_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a job has at least one rank, but the world size is ", world_size));
  }
  if (pipe < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pipe=", pipe, " must be at least 1"));
  }
  if (world_size % pipe != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--pipe=", pipe, " does not divide the world size ", world_size,
        ": every replica needs ", pipe, " ranks. Start a multiple of ", pipe,
        " ranks, or choose a --pipe that divides ", world_size));
  }
  return Mesh(world_size / pipe, pipe);
}

Mesh::Coordinates Mesh::CoordinatesOf(int rank) const {
  CHECK_GE(rank, 0);
  CHECK_LT(rank, world_size());
  return {rank / pipe_, rank % pipe_};
}

int Mesh::RankAt(Coordinates at) const {
  CHECK(0 <= at.data && at.data < data_) << at.data << " in " << ToString();
  CHECK(0 <= at.pipe && at.pipe < pipe_) << at.pipe << " in " << ToString();
  return at.data * pipe_ + at.pipe;
}

std::vector<int> Mesh::RanksAlongData(int stage) const {
  std::vector<int> ranks;
  for (int d = 0; d < data_; ++d) ranks.push_back(RankAt({d, stage}));
  return ranks;
}

std::vector<int> Mesh::RanksAlongPipe(int replica) const {
  std::vector<int> ranks;
  for (int p = 0; p < pipe_; ++p) ranks.push_back(RankAt({replica, p}));
  return ranks;
}

std::string Mesh::ToString() const {
  return absl::StrCat("data ", data_, " x pipe ", pipe_);
}

absl::StatusOr<std::string> StrategyFor(const Mesh& mesh, int devices_per_rank,
                                        absl::string_view requested) {
  if (devices_per_rank < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a rank needs at least one device, but was given ", devices_per_rank));
  }
  const int devices = mesh.pipe() * devices_per_rank;
  const std::string fitting = DefaultStrategy(mesh.data(), devices);
  if (requested.empty() || requested == "auto") return fitting;
  for (const Needs& strategy : kStrategies) {
    if (requested != strategy.name) continue;
    if (Fits(strategy, mesh.data(), devices)) return std::string(requested);
    return absl::InvalidArgumentError(
        absl::StrCat("--strategy=", requested, " runs ", strategy.text,
                     ", but the mesh (", mesh.ToString(), ", devices per rank ",
                     devices_per_rank, ") has ", mesh.data(), " replica(s) on ",
                     devices, " device(s) each: use --strategy=", fitting,
                     ", or leave the flag out and change the mesh"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--strategy=", requested, " is not known; known are: ", KnownStrategies(),
      " (or auto)"));
}

}  // namespace tandem
