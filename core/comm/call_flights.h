// Flight entries of one call of a communicator: a collective, or the messages
// of one work.

#ifndef TANDEM_CORE_COMM_CALL_FLIGHTS_H_
#define TANDEM_CORE_COMM_CALL_FLIGHTS_H_

#include <vector>

#include "core/flight/recorder.h"

namespace tandem {

// In the recorder of the process. A value; one entry, as nearly every call has,
// costs no allocation.
class CallFlights {
 public:
  void Add(FlightRecorder::Id id) {
    if (empty()) {
      first_ = id;
    } else {
      further_.push_back(id);
    }
  }
  bool empty() const { return first_ < 0; }

  void Start() const { Note(&FlightRecorder::Start); }
  void Await() const { Note(&FlightRecorder::Await); }
  void Complete() const { Note(&FlightRecorder::Complete); }

 private:
  void Note(void (FlightRecorder::*note)(FlightRecorder::Id)) const {
    FlightRecorder& recorder = FlightRecorder::OfProcess();
    if (!empty()) (recorder.*note)(first_);
    for (const FlightRecorder::Id each : further_) (recorder.*note)(each);
  }

  FlightRecorder::Id first_ = -1;
  std::vector<FlightRecorder::Id> further_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_COMM_CALL_FLIGHTS_H_
