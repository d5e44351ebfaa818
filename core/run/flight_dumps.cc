#include "core/run/flight_dumps.h"

#include <cstdint>
#include <random>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/base/torch_status.h"
#include "core/flight/dump_file.h"

namespace tandem {
namespace {

constexpr char kKey[] = "flight";

// What nobody can guess: others may write to the folder of temporary files.
std::string DrawId() {
  std::random_device device;
  const uint64_t high = device();
  return absl::StrCat(absl::Hex((high << 32) | device(), absl::kZeroPad16));
}

absl::StatusOr<std::string> IdOfJob(const Communicator& world) {
  if (world.size() == 1) return DrawId();
  return CatchTorchOr([&] {
    if (world.rank() == 0) world.store()->set(kKey, DrawId());
    return world.store()->get_to_str(kKey);
  });
}

}  // namespace

absl::Status StartFlightDumps(const Communicator& world,
                              const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(const std::string id, IdOfJob(world));
  FlightJob job;
  job.rank = world.rank();
  job.world_size = world.size();
  job.id = id;
  job.folder = folder;
  if (folder.empty()) {
    const std::string tmp = Environment::OfProcess().Get("TMPDIR").value_or("");
    job.folder =
        absl::StrCat(tmp.empty() ? "/tmp" : tmp, "/tandem-flight-", id);
    job.is_private = true;
  }
  SetFlightJob(std::move(job));
  return absl::OkStatus();
}

}  // namespace tandem
