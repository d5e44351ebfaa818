#include "tools/trainer/replacement/generations.h"

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/status_macros.h"

namespace tandem {
namespace {

// What a process takes once, whatever generations come.
struct Host {
  std::vector<c10::Device> devices;
  int intra_op_threads = 1;
  std::string job;  // its id
};

// Nothing of the job lives when this returns.
absl::Status RunOne(const Job& first, const RunGeneration& run,
                    Replacement& replacement, Host* host) {
  Job job;
  job.options = first.options;
  // Each rank must have all of the state that another may take over.
  job.options.ddp.shard_optimizer = "off";
  job.restarts = first.restarts;
  job.launch = replacement.LaunchNow();
  job.roster = replacement.RosterNow();
  job.devices = host->devices;
  job.intra_op_threads = host->intra_op_threads;
  job.id = host->job;
  absl::Status done = run(job, &replacement);
  *host = {job.devices, job.intra_op_threads, job.id};
  return done;
}

}  // namespace

absl::Status RunGenerations(Job first, const RunGeneration& run) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Replacement> replacement,
                          Replacement::Enter(first.options, first.launch));
  Host host;
  bool goes_on = replacement != nullptr;
  while (goes_on) {
    const absl::Status done = RunOne(first, run, *replacement, &host);
    if (done.ok()) return replacement->Finish();
    TANDEM_ASSIGN_OR_RETURN(goes_on, replacement->GoOn(done));
  }
  return absl::OkStatus();
}

}  // namespace tandem
