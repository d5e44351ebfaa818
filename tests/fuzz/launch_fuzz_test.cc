// Flags and environment that place a process among the ranks
// (core/launch/resolve_launch.h): lines NAME=value; those of flags begin with
// "--". Those of "--dist_url" and Slurm's lists are read alone, too.

#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/launch/dist_url.h"
#include "core/launch/resolve_launch.h"
#include "core/launch/sources.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

void SetFlag(const std::string& name, const std::string& value,
             LaunchSettings* flags) {
  if (name == "--dist_url") flags->dist_url = value;
  if (name == "--master_addr") flags->master_addr = value;
  const std::map<std::string, std::optional<int>*> numbers = {
      {"--nnodes", &flags->nnodes},
      {"--node_rank", &flags->node_rank},
      {"--nproc_per_node", &flags->nproc_per_node},
      {"--master_port", &flags->master_port},
      {"--world_size", &flags->world_size},
      {"--rank", &flags->rank},
      {"--local_rank", &flags->local_rank},
      {"--max_restarts", &flags->max_restarts}};
  const auto found = numbers.find(name);
  int number = 0;
  if (found == numbers.end() || !absl::SimpleAtoi(value, &number)) return;
  *found->second = number;
}

void ReadAlone(const std::string& value) {
  (void)ParseDistUrl(value).ok();
  (void)ParseTasksPerNode(value).ok();
  FirstHost(value);
}

void CheckPlan(const LaunchPlan& plan) {
  const Launch& launch = plan.launch;
  CHECK_GE(launch.rank, 0);
  CHECK_LT(launch.rank, launch.world_size);
  CHECK_GE(launch.local_rank, 0);
  CHECK_LT(launch.local_rank, launch.local_world_size);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::LaunchSettings flags;
  tandem::Environment env;
  for (const absl::string_view line :
       absl::StrSplit(tandem::InputText(data, size), '\n')) {
    const std::pair<std::string, std::string> named =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    tandem::ReadAlone(named.second);
    if (absl::StartsWith(line, "--")) {
      tandem::SetFlag(named.first, named.second, &flags);
    } else {
      env.Set(named.first, named.second);
    }
  }
  const auto plan = tandem::ResolveLaunch(flags, env);
  if (plan.ok()) tandem::CheckPlan(*plan);
  return 0;
}
