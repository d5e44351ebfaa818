#include "tools/trainer/step_trace.h"

#include <vector>

#include "core/base/status_macros.h"
#include "core/files/atomic_file.h"
#include "core/instrument/trace.h"

namespace tandem {

bool StartStepTrace(const TrainOptions& options, int64_t step) {
  const bool traced = !options.trace_file.empty() && step == options.trace_step;
  if (traced) Trace::OfProcess().Start();
  return traced;
}

absl::Status WriteStepTrace(const std::string& path, Communicator& world) {
  const std::string mine = TraceToJson(Trace::OfProcess().Stop(), world.rank());
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                          world.AllGatherString(mine));
  if (world.rank() != 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::string joined, JoinTraces(all));
  return WriteOutputFile(path, joined);
}

}  // namespace tandem
