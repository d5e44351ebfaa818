// Training job: one rank's part of it, set up and ready to run.

#ifndef TANDEM_TOOLS_TRAINER_JOB_JOB_H_
#define TANDEM_TOOLS_TRAINER_JOB_JOB_H_

#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/autotune/job_kernels.h"
#include "core/checkpoint/row_parts.h"
#include "core/comm/communicator.h"
#include "core/launch/launch.h"
#include "core/launch/restarts.h"
#include "core/mesh/mesh.h"
#include "models/lora/merged_weights.h"
#include "parallel/strategy/strategy.h"
#include "tools/trainer/job/data.h"
#include "tools/trainer/job/model.h"
#include "tools/trainer/job/save_folder.h"
#include "tools/trainer/job/transformer.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

// Which ranks of a job are there, where those that die are replaced.
struct PresentRanks {
  int launched = 1;        // ranks that were
  std::vector<int> ranks;  // their numbers, by what they are now
  bool is_first = true;    // nobody has come or gone yet
};

struct Job {
  TrainOptions options;
  // Tells it from other jobs, through all restarts and resumes; the same on all
  // ranks, once it is known where the job starts.
  std::string id;
  Launch launch;
  RestartCount restarts;
  // With --replace_replicas: `launch` is then of those that are there.
  std::optional<PresentRanks> present;
  Mesh mesh;
  int intra_op_threads = 1;
  int64_t batch_size_per_replica = 0;
  std::vector<c10::Device> devices;  // this rank's
  std::unique_ptr<Communicator> world;
  SaveFolder save_folder;               // rank 0's, of --save_dir
  std::unique_ptr<JobKernels> kernels;  // null: by a fixed rule
  JobData data;
  std::optional<Transformer> transformer;  // none: another kind of model
  RowParts row_parts;                  // parameters that are rows of one weight
  std::optional<LoraRecord> adapters;  // none: the model itself is trained
  int64_t planned_steps = 0;           // of all of it, where it trains
  JobFlops flops;                      // on rank 0
  std::unique_ptr<Strategy> strategy;
  std::string partition;  // where the model was cut, for a person
  // --microbatches=auto, on rank 0: how many were taken, and why, for a person;
  // 0 and empty: it was not given.
  int64_t microbatches = 0;
  std::string microbatches_tried;
  std::string optimizer_groups;   // OptimizerGroups' description
  std::string exempt_from_decay;  // how many parameters are; empty: as usual

  bool is_rank_zero() const { return launch.rank == 0; }
  // A rank of it died, and its launcher has started all of them again.
  bool is_restarted() const { return restarts.done > 0; }
  // Goes on from what ranks have that were there before.
  bool takes_over() const { return present.has_value() && !present->is_first; }
  // How many replicas were launched, and this rank's number among ranks that
  // were.
  int launched_replicas() const {
    return present ? present->launched / mesh.ranks_of_replica()
                   : mesh.replicas();
  }
  int launched_rank() const {
    return present ? present->ranks[static_cast<size_t>(launch.rank)]
                   : launch.rank;
  }
  // Samples of a step, of all replicas that are there.
  int64_t batch_size() const {
    return batch_size_per_replica * mesh.replicas();
  }
  // Which share of the data is this rank's; of a server, which takes none, the
  // first worker's.
  int data_rank() const {
    return mesh.ReplicaIndex(
        std::max(0, launch.rank - ParameterServerCount(options)));
  }
};

// The ranks that train: all but a parameter server's servers.
absl::StatusOr<Mesh> JobMesh(const TrainOptions& options, int world_size);

// Whether the options suit this many ranks: mesh, strategy, batch size.
absl::Status CheckLayout(const TrainOptions& options, int world_size);

// What each replica has of a step.
absl::StatusOr<int64_t> ReplicaBatchSize(const TrainOptions& options,
                                         int replicas);

// The settings, resolved, for the report: all of them, and those that a person
// is shown, which are not as usual or follow from several.
struct JobDescription {
  SettingValues all;
  SettingValues shown;
};
JobDescription DescribeJob(const Job& job);

// What --strategy takes, auto among them.
std::vector<std::string> StrategyNames();

// The name of the strategy that a mesh asks for, when every rank has
// `devices_per_rank` devices:
//
//   a replica has               one replica      several replicas
//   one device                  single           ddp
//   several, all of one rank    model_parallel   ddp
//   several ranks (pipe > 1)    pipeline         hybrid
//
// A device stands for all that share its layers (--tensor): each strategy
// divides layers, but for "data_parallel" and "parameter_server".
//
// "single", "model_parallel" and "ddp" run a replica's devices one after the
// other, "pipeline" and "hybrid" all at once, on microbatches. `requested`
// overrides it, where the mesh allows: "pipeline" wherever one replica has
// several devices, "hybrid" everywhere, "ddp" for one rank too, and
// "data_parallel", for which each device has a replica, wherever a rank that is
// no part of a pipeline has several devices.
// Empty or "auto" asks for none. InvalidArgument for an unknown name, or one
// that contradicts the mesh.
absl::StatusOr<std::string> StrategyFor(const Mesh& mesh, int devices_per_rank,
                                        absl::string_view requested);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAINER_JOB_JOB_H_
