// What --replace_replicas can be given with.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/trainer/settings/options.h"

namespace tandem {

absl::Status CheckReplacedReplicas(const TrainOptions& options) {
  if (options.replace_replicas == 0) return absl::OkStatus();
  struct Rule {
    bool is_broken;
    std::string given;
    std::string why;
  };
  const PipelineSettings& pipeline = options.pipeline;
  const DdpSettings& ddp = options.ddp;
  const std::vector<Rule> rules = {
      {options.strategy != "ddp" && options.strategy != "hybrid" &&
           options.strategy != "auto",
       absl::StrCat("--strategy=", options.strategy),
       "is for replicas of one rank each (--strategy=ddp or hybrid)"},
      {pipeline.pipe > 1, absl::StrCat("--pipe=", pipeline.pipe),
       "is for replicas of one rank each"},
      {options.devices.device == "cuda", "--device=cuda",
       "makes groups anew, which it does for --device=cpu and sim"},
      {options.backend != "shm" && options.backend != "gloo",
       absl::StrCat("--backend=", options.backend),
       "makes groups anew, which it does for --backend=shm and gloo"},
      {ddp.shard_optimizer == "on", "--shard_optimizer=on",
       "takes a lost rank's state from a neighbour, who must have all of it"},
      {ddp.average_parameters_every > 1,
       absl::StrCat("--average_parameters_every=",
                    ddp.average_parameters_every),
       "goes on from any replica's parameters, which must be alike"},
      {!ddp.parameters_to_ignore.empty(),
       absl::StrCat("--parameters_to_ignore=",
                    absl::StrJoin(ddp.parameters_to_ignore, ",")),
       "takes a lost rank's state from a neighbour, who has others of these"},
      {ddp.uneven_inputs == "join", "--uneven_inputs=join",
       "deals the samples that are left anew, as many to each"},
      {options.eval_only, "--eval_only", "is for training"},
  };
  for (const Rule& rule : rules) {
    if (!rule.is_broken) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--replace_replicas=", options.replace_replicas, " ", rule.why,
        ", but ", rule.given, " was given: leave one out"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
