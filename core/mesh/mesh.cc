#include "core/mesh/mesh.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

std::string AxesText(const std::vector<MeshAxis>& axes) {
  return absl::StrJoin(axes, " x ", [](std::string* out, const MeshAxis& axis) {
    absl::StrAppend(out, axis.name, " ", axis.degree);
  });
}

absl::Status CheckNames(const std::vector<MeshAxis>& axes) {
  std::set<std::string> names;
  for (const MeshAxis& axis : axes) {
    if (!axis.name.empty() && names.insert(axis.name).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the axes of a mesh have names of their own, but '", axis.name, "' is ",
        axis.name.empty() ? "none" : "there twice", " in ", AxesText(axes)));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Ranks(const std::vector<MeshAxis>& axes) {
  int ranks = 1;
  for (const MeshAxis& axis : axes) {
    if (axis.degree < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a ", axis.name, " degree is at least 1, but is ", axis.degree));
    }
    if (axis.degree > std::numeric_limits<int>::max() / ranks) {
      return absl::InvalidArgumentError(
          absl::StrCat("a mesh of ", AxesText(axes), " has too many ranks"));
    }
    ranks *= axis.degree;
  }
  return ranks;
}

std::vector<MeshAxis> JobAxes(int data, const MeshDegrees& degrees) {
  std::vector<MeshAxis> axes = {{std::string(kDataAxis), data}};
  if (degrees.shard > 1) {
    axes.push_back({std::string(kShardAxis), degrees.shard});
  }
  axes.push_back({std::string(kPipeAxis), degrees.pipe});
  if (degrees.tensor > 1) {
    axes.push_back({std::string(kTensorAxis), degrees.tensor});
  }
  return axes;
}

absl::Status CheckDegrees(int world_size, const MeshDegrees& degrees) {
  if (world_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a job has at least one rank, but the world size is ", world_size));
  }
  int64_t ranks = 1;
  std::vector<MeshAxis> given;
  for (const auto& [axis, degree] : {std::pair(kShardAxis, degrees.shard),
                                     std::pair(kPipeAxis, degrees.pipe),
                                     std::pair(kTensorAxis, degrees.tensor)}) {
    if (degree < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a ", axis, " degree is at least 1, but is ", degree));
    }
    if (degree > 1) given.push_back({std::string(axis), degree});
    ranks = std::min<int64_t>(ranks * degree, std::numeric_limits<int>::max());
  }
  if (world_size % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      given.size() == 1
          ? absl::StrCat("the ", given[0].name, " degree ", given[0].degree)
          : absl::StrCat("the product of ", AxesText(given)),
      " does not divide the world size ", world_size, ": start a multiple of ",
      ranks, " ranks, or choose degrees that divide ", world_size));
}

}  // namespace

bool IsSampleAxis(absl::string_view axis) {
  return absl::c_linear_search(kSampleAxes, axis);
}

Mesh::Mesh() : axes_(JobAxes(1, {})) {}

Mesh::Mesh(std::vector<MeshAxis> axes, int world_size)
    : axes_(std::move(axes)), world_size_(world_size) {}

absl::StatusOr<Mesh> Mesh::Create(std::vector<MeshAxis> axes) {
  const absl::Status names = CheckNames(axes);
  if (!names.ok()) return names;
  const absl::StatusOr<int> ranks = Ranks(axes);
  if (!ranks.ok()) return ranks.status();
  return Mesh(std::move(axes), *ranks);
}

absl::StatusOr<Mesh> Mesh::Create(int world_size, const MeshDegrees& degrees) {
  const absl::Status divides = CheckDegrees(world_size, degrees);
  if (!divides.ok()) return divides;
  const int data = world_size / (degrees.shard * degrees.pipe * degrees.tensor);
  return Mesh(JobAxes(data, degrees), world_size);
}

int Mesh::degree(absl::string_view axis) const {
  for (const MeshAxis& each : axes_) {
    if (each.name == axis) return each.degree;
  }
  return 1;
}

int Mesh::replicas() const {
  int product = 1;
  for (const absl::string_view axis : kSampleAxes) product *= degree(axis);
  return product;
}

int Mesh::ReplicaIndex(int rank) const {
  int replica = 0;
  for (const absl::string_view axis : kSampleAxes) {
    replica = replica * degree(axis) + IndexAlong(axis, rank);
  }
  return replica;
}

int Mesh::IndexAlong(absl::string_view axis, int rank) const {
  const Coordinates at = RankCoordinates(rank);
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return at[i];
  }
  return 0;
}

Mesh::Coordinates Mesh::RankCoordinates(int rank) const {
  CHECK_GE(rank, 0);
  CHECK_LT(rank, world_size());
  Coordinates at(axes_.size());
  for (size_t i = axes_.size(); i-- > 0;) {
    at[i] = rank % axes_[i].degree;
    rank /= axes_[i].degree;
  }
  return at;
}

int Mesh::RankAt(const Coordinates& at) const {
  CHECK_EQ(at.size(), axes_.size());
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    CHECK(0 <= at[i] && at[i] < axes_[i].degree)
        << axes_[i].name << " " << at[i] << " in " << ToString();
    rank = rank * axes_[i].degree + at[i];
  }
  return rank;
}

std::vector<int> Mesh::RanksAlong(const std::vector<absl::string_view>& axes,
                                  int rank) const {
  const Coordinates here = RankCoordinates(rank);
  std::vector<int> ranks;
  for (int other = 0; other < world_size_; ++other) {
    const Coordinates there = RankCoordinates(other);
    bool is_member = true;
    for (size_t i = 0; i < axes_.size(); ++i) {
      const bool varies = absl::c_linear_search(axes, axes_[i].name);
      is_member = is_member && (varies || there[i] == here[i]);
    }
    if (is_member) ranks.push_back(other);
  }
  return ranks;
}

std::vector<int> Mesh::RanksOfReplicas(int rank) const {
  return RanksAlong({std::begin(kSampleAxes), std::end(kSampleAxes)}, rank);
}

bool Mesh::IsFirstBeside(const std::vector<absl::string_view>& axes,
                         int rank) const {
  const Coordinates at = RankCoordinates(rank);
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (at[i] != 0 && !absl::c_linear_search(axes, axes_[i].name)) return false;
  }
  return true;
}

std::string Mesh::ToString() const { return AxesText(axes_); }

}  // namespace tandem
