// Limits of simulation: how many simulated devices there can be.

#ifndef TANDEM_CORE_SIM_STREAMS_LIMITS_H_
#define TANDEM_CORE_SIM_STREAMS_LIMITS_H_

namespace tandem {
namespace sim {

constexpr int kMostDevices = 16;

}  // namespace sim
}  // namespace tandem

#endif  // TANDEM_CORE_SIM_STREAMS_LIMITS_H_
