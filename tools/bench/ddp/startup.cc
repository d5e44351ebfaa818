#include "tools/bench/ddp/startup.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/job.h"
#include "tools/bench/process/runfile.h"

namespace tandem {
namespace {

constexpr int kRepeats = 5;
constexpr std::chrono::minutes kTimeout(2);

// Milliseconds until `command` prints a line with `mark` in it; then it may end
// by itself.
absl::StatusOr<double> TimeUntil(const std::vector<std::string>& command,
                                 const std::string& mark,
                                 const ComparisonOptions& options) {
  Environment environment = Environment::OfProcess();
  environment.Set("OMP_NUM_THREADS", absl::StrCat(options.threads));
  TANDEM_ASSIGN_OR_RETURN(const JobEnd end,
                          RunJob(command, environment, kTimeout, mark));
  if (end.seconds_to_mark > 0) return 1e3 * end.seconds_to_mark;
  return absl::InternalError(
      absl::StrCat(command.back(), " did not come to its first step"));
}

}  // namespace

absl::StatusOr<StartupResult> MeasureStartup(int ranks,
                                             const ComparisonOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::string train, Runfile("tools/train"));
  TANDEM_ASSIGN_OR_RETURN(const std::string script,
                          Runfile("tools/bench/peers/first_step.py"));
  TANDEM_ASSIGN_OR_RETURN(const std::string python, options.python);
  const std::string nproc = absl::StrCat("--nproc_per_node=", ranks);
  const std::vector<std::string> ours = {
      train,
      nproc,
      "--model=mlp_small",
      "--dataset=synthetic",
      "--synthetic_shape=1,8,8",
      "--synthetic_samples=256",
      absl::StrCat("--batch_size=", 32 * ranks),
      "--max_steps=1",
      "--log_every=1"};
  const std::vector<std::string> peer = {
      "/usr/bin/env", python, "-m",  "torch.distributed.run",
      "--standalone", nproc,  script};
  std::vector<double> our_ms;
  std::vector<double> peer_ms;
  for (int i = 0; i < kRepeats; ++i) {
    std::vector<std::string> command = ours;
    command.push_back(
        absl::StrCat("--save_dir=", options.folder, "/startup_", i));
    TANDEM_ASSIGN_OR_RETURN(our_ms.emplace_back(),
                            TimeUntil(command, "step 1/", options));
    TANDEM_ASSIGN_OR_RETURN(peer_ms.emplace_back(),
                            TimeUntil(peer, "first step done", options));
  }
  return StartupResult{Median(our_ms), Median(peer_ms)};
}

}  // namespace tandem
