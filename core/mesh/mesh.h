// Device mesh: the ranks of a job as a grid with named axes. Plain arithmetic:
// no process group, no tensor (as torchtitan keeps `ParallelDims` apart from
// its communicators; PyTorch's DeviceMesh is both).

#ifndef TANDEM_CORE_MESH_MESH_H_
#define TANDEM_CORE_MESH_MESH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Replicas of a model, which see different samples.
inline constexpr absl::string_view kDataAxis = "data";
// Replicas that share what they train among them (FSDP), where these are fewer
// than all (HSDP): groups of them lie along "data".
inline constexpr absl::string_view kShardAxis = "shard";
// Parts of a model, one after the other, on different ranks.
inline constexpr absl::string_view kPipeAxis = "pipe";
// Parts of layers' tensors, for the same samples (tensor parallelism).
inline constexpr absl::string_view kTensorAxis = "tensor";

// Along sample axes ranks see different samples, and their gradients are
// averaged; along all others they work on the same ones.
inline constexpr absl::string_view kSampleAxes[] = {kDataAxis, kShardAxis};
bool IsSampleAxis(absl::string_view axis);

struct MeshAxis {
  std::string name;
  int degree = 1;  // ranks along it
};

// Degrees of a job's mesh but for "data", which has what the ranks leave.
struct MeshDegrees {
  int pipe = 1;
  int tensor = 1;
  int shard = 1;
};

// The last axis is fastest: in data 2 x pipe 3,
//
//   rank = data index * 3 + pipe index
//
// so that who exchanges most are neighbours, for launchers number the ranks of
// a host in a row: the order of a job's axes is data, shard, pipe, tensor.
// Parts of a layer exchange activations in every layer, stages for every
// microbatch, and replicas meet once a step.
//
// An axis that a mesh lacks is one of degree 1, along which every rank has
// index 0. Immutable: may be used by any number of threads.
class Mesh {
 public:
  // By axis, in the order of axes().
  using Coordinates = std::vector<int>;

  // One rank: data 1 x pipe 1.
  Mesh();

  // data x pipe, with further axes where their degrees are not 1.
  // InvalidArgument when a degree is not positive, or their product does not
  // divide `world_size`.
  static absl::StatusOr<Mesh> Create(int world_size,
                                     const MeshDegrees& degrees);
  // Any axes, the slowest first. InvalidArgument for a degree that is not
  // positive, more ranks than an int counts, and for a name that is empty or
  // there twice.
  static absl::StatusOr<Mesh> Create(std::vector<MeshAxis> axes);

  int world_size() const { return world_size_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  int degree(absl::string_view axis) const;
  int pipe() const { return degree(kPipeAxis); }
  // How many there are of the model: along all sample axes.
  int replicas() const;
  int ranks_of_replica() const { return world_size_ / replicas(); }

  // Each requires 0 <= rank < world_size().
  int IndexAlong(absl::string_view axis, int rank) const;
  // The number of the rank's replica.
  int ReplicaIndex(int rank) const;
  Coordinates RankCoordinates(int rank) const;
  // Requires coordinates inside the mesh.
  int RankAt(const Coordinates& at) const;

  // The ranks that stand where `rank` does along every other axis, in rising
  // order: `rank`'s group for a collective over `axes`. Over {"pipe"}, those
  // of one pipeline. Each rank is in one such group.
  std::vector<int> RanksAlong(const std::vector<absl::string_view>& axes,
                              int rank) const;
  // The same for all sample axes: those that hold the same of the model.
  std::vector<int> RanksOfReplicas(int rank) const;

  // Whether `rank` has index 0 along every axis but these: of the ranks that
  // have something alike, which differs along `axes` alone, it is the first.
  bool IsFirstBeside(const std::vector<absl::string_view>& axes,
                     int rank) const;

  std::string ToString() const;  // "data 2 x pipe 3"

 private:
  Mesh(std::vector<MeshAxis> axes, int world_size);

  std::vector<MeshAxis> axes_;
  int world_size_ = 1;
};

}  // namespace tandem

#endif  // TANDEM_CORE_MESH_MESH_H_
