// For tests: what event files hold.

#ifndef TANDEM_TESTS_CORE_TENSORBOARD_EVENT_RECORDS_H_
#define TANDEM_TESTS_CORE_TENSORBOARD_EVENT_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tandem {

// The data of each record; fails the test for bytes that are no whole record,
// or that have another checksum.
std::vector<std::string> RecordsIn(const std::string& path);

struct ReadHistogram {
  double count = 0;
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> limits;
  std::vector<double> counts;

  bool operator==(const ReadHistogram& other) const = default;
};

// One event, with its values by tag.
struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  bool starts_session = false;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::string> images;  // in PNG
  std::map<std::string, ReadHistogram> histograms;
};

// Fails the test for bytes that are no event.
ReadEvent ParseEvent(const std::string& record);

// The paths of a folder's event files, in the order in which TensorBoard reads
// them.
std::vector<std::string> EventFilesIn(const std::string& folder);

// All of theirs.
std::vector<ReadEvent> EventsIn(const std::string& folder);

// The scalars of one tag, by step.
std::map<int64_t, float> ScalarsIn(const std::vector<ReadEvent>& events,
                                   const std::string& tag);

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TENSORBOARD_EVENT_RECORDS_H_
