#include "tests/core/tensorboard/event_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <protozero/pbf_reader.hpp>

#include "absl/strings/string_view.h"
#include "core/tensorboard/record.h"
#include "tests/core/testing/test_files.h"

namespace tandem {
namespace {

using Reader = protozero::pbf_reader;

ReadHistogram ParseHistogram(Reader proto) {
  ReadHistogram histogram;
  while (proto.next()) {
    switch (proto.tag()) {
      case 3:
        histogram.count = proto.get_double();
        break;
      case 4:
        histogram.sum = proto.get_double();
        break;
      case 5:
        histogram.sum_of_squares = proto.get_double();
        break;
      case 6: {
        const auto limits = proto.get_packed_double();
        histogram.limits.assign(limits.begin(), limits.end());
        break;
      }
      case 7: {
        const auto counts = proto.get_packed_double();
        histogram.counts.assign(counts.begin(), counts.end());
        break;
      }
      default:
        proto.skip();
    }
  }
  return histogram;
}

// The bytes of a field of this number; empty: there is none.
std::string BytesField(Reader proto, protozero::pbf_tag_type number) {
  std::string bytes;
  while (proto.next(number)) bytes = proto.get_string();
  return bytes;
}

void ParseValue(Reader proto, ReadEvent* event) {
  std::string tag;
  while (proto.next()) {
    switch (proto.tag()) {
      case 1:
        tag = proto.get_string();
        break;
      case 2:
        event->scalars[tag] = proto.get_float();
        break;
      case 4:
        event->images[tag] = BytesField(proto.get_message(), 4);
        break;
      case 5:
        event->histograms[tag] = ParseHistogram(proto.get_message());
        break;
      case 8:
        event->texts[tag] = BytesField(proto.get_message(), 8);
        break;
      default:
        proto.skip();
    }
  }
}

void ParseFields(Reader proto, ReadEvent* event) {
  while (proto.next()) {
    switch (proto.tag()) {
      case 1:
        event->wall_time = proto.get_double();
        break;
      case 2:
        event->step = proto.get_int64();
        break;
      case 3:
        event->file_version = proto.get_string();
        break;
      case 5: {
        Reader summary = proto.get_message();
        while (summary.next(1)) ParseValue(summary.get_message(), event);
        break;
      }
      case 7: {
        Reader session = proto.get_message();
        while (session.next(1)) event->starts_session = session.get_enum() == 1;
        break;
      }
      default:
        proto.skip();
    }
  }
}

}  // namespace

std::vector<std::string> RecordsIn(const std::string& path) {
  const std::string bytes = ReadBytes(path);
  absl::string_view rest = bytes;
  std::vector<std::string> records;
  constexpr size_t kFrame = 16;
  while (!rest.empty()) {
    uint64_t length = 0;
    if (rest.size() >= kFrame) std::memcpy(&length, rest.data(), 8);
    if (rest.size() < kFrame || length > rest.size() - kFrame) {
      ADD_FAILURE() << path << " ends within a record, " << rest.size()
                    << " bytes before its end";
      return records;
    }
    records.emplace_back(rest.substr(12, length));
    std::string framed;
    AppendRecord(records.back(), &framed);
    EXPECT_EQ(rest.substr(0, framed.size()), framed);
    rest.remove_prefix(framed.size());
  }
  return records;
}

ReadEvent ParseEvent(const std::string& record) {
  ReadEvent event;
  try {
    ParseFields(Reader(record), &event);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "no event: " << error.what();
  }
  return event;
}

std::vector<std::string> EventFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    paths.push_back(each.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<ReadEvent> EventsIn(const std::string& folder) {
  std::vector<ReadEvent> events;
  for (const std::string& path : EventFilesIn(folder)) {
    for (const std::string& each : RecordsIn(path)) {
      events.push_back(ParseEvent(each));
    }
  }
  return events;
}

std::map<int64_t, float> ScalarsIn(const std::vector<ReadEvent>& events,
                                   const std::string& tag) {
  std::map<int64_t, float> scalars;
  for (const ReadEvent& each : events) {
    const auto found = each.scalars.find(tag);
    if (found != each.scalars.end()) scalars[each.step] = found->second;
  }
  return scalars;
}

}  // namespace tandem
