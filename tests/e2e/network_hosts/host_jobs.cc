#include "tests/e2e/network_hosts/host_jobs.h"

#include <map>

#include "gtest/gtest.h"

namespace tandem {
namespace {

using Environment = std::map<std::string, std::string>;

constexpr int kHosts = 2;
// Hosts are new for each test: nobody else has it there.
constexpr char kPort[] = "29500";

ProgramOptions Set(Environment environment) {
  ProgramOptions options;
  options.environment = std::move(environment);
  return options;
}

Environment TorchrunsOf(const NetworkHosts& hosts, int host, int local_rank,
                        int ranks_of_each) {
  const std::string rank = std::to_string(host * ranks_of_each + local_rank);
  const std::string world = std::to_string(kHosts * ranks_of_each);
  return {{"MASTER_ADDR", hosts.Name(0)},
          {"MASTER_PORT", kPort},
          {"RANK", rank},
          {"WORLD_SIZE", world},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(ranks_of_each)},
          {"GROUP_RANK", std::to_string(host)},
          {"GROUP_WORLD_SIZE", std::to_string(kHosts)},
          {"ROLE_RANK", rank},
          {"ROLE_WORLD_SIZE", world},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
}

Environment SlurmsOf(const NetworkHosts& hosts, int host, int local_rank,
                     int ranks_of_each) {
  const std::string ranks = std::to_string(kHosts * ranks_of_each);
  return {{"SLURM_JOB_ID", "21"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", std::to_string(host * ranks_of_each + local_rank)},
          {"SLURM_LOCALID", std::to_string(local_rank)},
          {"SLURM_NODEID", std::to_string(host)},
          {"SLURM_NTASKS", ranks},
          {"SLURM_STEP_NUM_TASKS", ranks},
          {"SLURM_STEP_NUM_NODES", std::to_string(kHosts)},
          {"SLURM_STEP_NODELIST", "host[0-1]"},
          {"SLURM_STEP_TASKS_PER_NODE",
           std::to_string(ranks_of_each) + "(x" + std::to_string(kHosts) + ")"},
          // Where srun was called: no place to meet.
          {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
          {"SLURMD_NODENAME", hosts.Name(host)}};
}

template <typename EnvironmentOf>
Programs StartEach(const NetworkHosts& hosts, int ranks_of_each,
                   const Flags& flags, EnvironmentOf environment_of) {
  Programs programs;
  for (int host = 0; host < kHosts; ++host) {
    for (int rank = 0; rank < ranks_of_each; ++rank) {
      programs.push_back(
          hosts.Start(host, kTrain, flags,
                      Set(environment_of(hosts, host, rank, ranks_of_each))));
    }
  }
  return programs;
}

}  // namespace

Programs StartLaunchers(const NetworkHosts& hosts, int ranks_of_each,
                        const Flags& flags) {
  Programs programs;
  for (int host = 0; host < kHosts; ++host) {
    programs.push_back(hosts.Start(
        host, kTrain,
        Joined(flags, {"--nnodes=" + std::to_string(kHosts),
                       "--node_rank=" + std::to_string(host),
                       "--nproc_per_node=" + std::to_string(ranks_of_each),
                       "--master_addr=" + hosts.Address(0)})));
  }
  return programs;
}

Programs StartAsTorchrun(const NetworkHosts& hosts, int ranks_of_each,
                         const Flags& flags) {
  return StartEach(hosts, ranks_of_each, flags, TorchrunsOf);
}

Programs StartAsSlurm(const NetworkHosts& hosts, int ranks_of_each,
                      const Flags& flags) {
  return StartEach(hosts, ranks_of_each, flags, SlurmsOf);
}

void ExpectAllEndWell(const Programs& programs) {
  for (const auto& program : programs) {
    const ProgramResult result = program->Wait();
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
}

}  // namespace tandem
