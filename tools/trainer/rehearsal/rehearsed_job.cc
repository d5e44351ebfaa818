#include "tools/trainer/rehearsal/rehearsed_job.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/status_macros.h"
#include "core/comm/communicator.h"

namespace tandem {

using nlohmann::json;

// For the library, which finds them by their names.
namespace sim {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CountedWork, flops, bytes, seconds, calls)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceWork, forward, backward, rest)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CountedTraffic, bytes, seconds, calls)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceTraffic, copies, messages, collectives,
                                   waited)
}  // namespace sim

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemoryUse, total, by_category)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RehearsedDevice, name, peak, work, traffic)

absl::StatusOr<std::vector<RehearsedDevice>> GatherDevices(
    const std::vector<RehearsedDevice>& mine, Communicator& world) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          world.AllGatherString(json(mine).dump(), [] {
                            return "what devices would hold and do";
                          }));
  std::vector<RehearsedDevice> all;
  for (const std::string& text : texts) {
    for (const json& each : json::parse(text)) {
      all.push_back(each.get<RehearsedDevice>());
    }
  }
  return all;
}

}  // namespace tandem
