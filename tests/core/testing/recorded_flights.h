// What the flight recorder of the process notes while something runs. For
// tests.

#ifndef TANDEM_TESTS_CORE_TESTING_RECORDED_FLIGHTS_H_
#define TANDEM_TESTS_CORE_TESTING_RECORDED_FLIGHTS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "core/flight/dump.h"
#include "core/flight/recorder.h"

namespace tandem {

// Forgets what was noted before, and afterwards what is given here.
template <typename F>
FlightDump RecordedFlights(F&& run) {
  FlightRecorder& recorder = FlightRecorder::OfProcess();
  recorder.SetCapacity(100000);
  run();
  FlightDump dump;
  EXPECT_TRUE(recorder.Read(&dump));
  recorder.SetCapacity(FlightRecorder::kCapacity);
  return dump;
}

// What collectives were for, by the name of their group: "shards of stage 0".
inline std::map<std::string, std::set<std::string>> PurposesByGroup(
    const FlightDump& dump) {
  std::map<std::string, std::set<std::string>> purposes;
  for (const FlightEntry& each : dump.entries) {
    if (each.kind != FlightKind::kCollective) continue;
    const auto group = static_cast<size_t>(each.group);
    purposes[dump.groups.at(group).name].insert(each.what);
  }
  return purposes;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_RECORDED_FLIGHTS_H_
