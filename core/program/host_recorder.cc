#include "core/program/host_recorder.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

namespace tandem {

void TurnOffHostRecorder() {
  if (std::getenv("TORCH_FR_BUFFER_SIZE") != nullptr) return;
  c10d::getFlightRecorder(c10d::kDefaultFRBackend)->enabled_ = false;
}

}  // namespace tandem
