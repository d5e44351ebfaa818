#include "tools/trainer/job/world.h"

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/base/status_macros.h"
#include "core/flight/recorder.h"
#include "core/run/flight_dumps.h"
#include "tools/trainer/settings/settings_agreement.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Communicator>> Connect(
    const TrainOptions& options, const Launch& launch) {
  FlightRecorder::OfProcess().SetCapacity(
      static_cast<size_t>(options.flight_entries));
  CommunicatorOptions communication;
  communication.timeout =
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout * 1e3));
  communication.backend = options.backend;
  communication.stages_on_host = options.devices.share_devices;
  communication.interface = options.interface;
  communication.straggler_warning = std::chrono::milliseconds(
      static_cast<int64_t>(options.straggler_warning * 1e3));
  TANDEM_ASSIGN_OR_RETURN(communication.settings, SettingsOfJob());
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> world,
                          Communicator::ForLaunch(launch, communication));
  TANDEM_RETURN_IF_ERROR(StartFlightDumps(*world, options.flight_dir));
  return world;
}

}  // namespace tandem
