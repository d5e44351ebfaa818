// Where a rank stands in data x pipe. Plain arithmetic: no process group, no
// tensor (as torchtitan keeps `ParallelDims` apart from its communicators).

#ifndef TANDEM_CORE_MESH_MESH_H_
#define TANDEM_CORE_MESH_MESH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// The ranks of a job as a grid of `data` replicas x `pipe` stages:
//
//   rank = data index * pipe degree + pipe index
//
// Pipe is fastest, so that the ranks of one replica are neighbours: launchers
// number the ranks of a host in a row, and stages exchange activations for
// every microbatch, while replicas meet once a step.
//
// Immutable: may be used by any number of threads.
class Mesh {
 public:
  struct Coordinates {
    int data = 0;  // which replica
    int pipe = 0;  // which stage
  };

  // One rank.
  Mesh() = default;

  // InvalidArgument when `pipe` is not positive or does not divide
  // `world_size`.
  static absl::StatusOr<Mesh> Create(int world_size, int pipe);

  int world_size() const { return data_ * pipe_; }
  int data() const { return data_; }  // degree: replicas
  int pipe() const { return pipe_; }  // degree: stages over ranks

  // Requires 0 <= rank < world_size().
  Coordinates CoordinatesOf(int rank) const;
  // Requires coordinates inside the mesh.
  int RankAt(Coordinates at) const;

  // The ranks that hold `stage`, by replica: they average its gradients.
  std::vector<int> RanksAlongData(int stage) const;
  // The ranks of `replica`, by stage: they form its pipeline.
  std::vector<int> RanksAlongPipe(int replica) const;

  std::string ToString() const;  // "data 2 x pipe 3"

 private:
  Mesh(int data, int pipe) : data_(data), pipe_(pipe) {}

  int data_ = 1;
  int pipe_ = 1;
};

// The name of the strategy that a mesh asks for, when every rank has
// `devices_per_rank` devices:
//
//   a replica has               one replica      several replicas
//   one device                  single           ddp
//   several, all of one rank    model_parallel   ddp
//   several ranks (pipe > 1)    pipeline         hybrid
//
// "single", "model_parallel" and "ddp" run a replica's devices one after the
// other, "pipeline" and "hybrid" all at once, on microbatches. `requested`
// overrides it, where the mesh allows: "pipeline" wherever one replica has
// several devices, "hybrid" everywhere, "ddp" for one rank too.
// Empty or "auto" asks for none. InvalidArgument for an unknown name, or one
// that contradicts the mesh.
absl::StatusOr<std::string> StrategyFor(const Mesh& mesh, int devices_per_rank,
                                        absl::string_view requested);

}  // namespace tandem

#endif  // TANDEM_CORE_MESH_MESH_H_
