#include "core/mesh/mesh.h"

#include <glog/logging.h>

#include <string>
#include <vector>

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
    {"model_parallel", true, false, false, true, false,
     "one replica on several devices of one rank"},
    {"pipeline", true, false, false, true, true,
     "one replica on several devices"},
    {"hybrid", true, true, true, true, true, "any replicas"},
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

absl::StatusOr<Mesh> Mesh::Create(int world_size, int pipe) {
  if (world_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a job has at least one rank, but the world size is ", world_size));
  }
  if (pipe < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pipe degree is at least 1, but is ", pipe));
  }
  if (world_size % pipe != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pipe degree ", pipe, " does not divide the world size ",
        world_size, ": every replica needs ", pipe,
        " ranks. Start a multiple of ", pipe,
        " ranks, or choose a pipe degree that divides ", world_size));
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
