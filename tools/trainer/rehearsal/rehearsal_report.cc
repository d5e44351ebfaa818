#include "tools/trainer/rehearsal/rehearsal_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"
#include "core/device/memory_category.h"

namespace tandem {
namespace {

using Row = std::vector<std::string>;

std::string Milliseconds(double seconds) {
  return absl::StrFormat("%.4g", seconds * 1e3);
}

double FlopsOfStep(const RehearsedDevice& device) {
  return device.work.forward.flops + device.work.backward.flops +
         device.work.rest.flops;
}

Row HeadOf(bool timed) {
  Row head = {"device", "peak"};
  for (int i = 0; i < kMemoryCategories; ++i) {
    head.emplace_back(MemoryCategoryName(static_cast<MemoryCategory>(i)));
  }
  head.push_back("TFLOP");
  if (timed) {
    head.insert(head.end(), {"forward ms", "backward ms", "update ms"});
  }
  return head;
}

Row RowOf(const RehearsedDevice& device, bool timed) {
  Row row = {device.name, FormatBytes(device.peak.total)};
  for (const int64_t bytes : device.peak.by_category) {
    row.push_back(FormatBytes(bytes));
  }
  row.push_back(absl::StrFormat("%.4g", FlopsOfStep(device) / 1e12));
  if (timed) {
    for (const sim::CountedWork& part :
         {device.work.forward, device.work.backward, device.work.rest}) {
      row.push_back(Milliseconds(part.seconds));
    }
  }
  return row;
}

std::string TableOf(const RehearsedJob& job) {
  const bool timed = job.step > 0;
  std::vector<Row> rows = {HeadOf(timed)};
  for (const RehearsedDevice& each : job.devices) {
    rows.push_back(RowOf(each, timed));
  }
  return TextTable(rows);
}

std::string StepOf(const RehearsedJob& job, const TrainOptions& options) {
  if (job.step <= 0) {
    return "no times: give --peak_tflops, --sim_memory_bandwidth or both\n";
  }
  double flops = 0;
  for (const RehearsedDevice& each : job.devices) flops += FlopsOfStep(each);
  return absl::StrFormat(
      "a step would take %s ms: %.4g samples/s, %.4g TFLOP/s; bubble %.1f %% "
      "of the busiest device's work; without communication\n",
      Milliseconds(job.step),
      static_cast<double>(options.batch_size) / job.step,
      flops / job.step / 1e12, 100 * job.bubble);
}

const RehearsedDevice& FullestOf(const RehearsedJob& job) {
  return *std::max_element(
      job.devices.begin(), job.devices.end(),
      [](const auto& a, const auto& b) { return a.peak.total < b.peak.total; });
}

}  // namespace

std::string DescribeRehearsal(const RehearsedJob& job,
                              const TrainOptions& options) {
  const RehearsedDevice& fullest = FullestOf(job);
  const std::string& there = options.devices.device_memory;
  return absl::StrCat(
      TableOf(job), StepOf(job, options), "fullest: ", fullest.name, " with ",
      FormatBytes(fullest.peak.total),
      there.empty() ? "" : absl::StrCat(" of --device_memory=", there), "\n");
}

absl::Status CheckFits(const RehearsedJob& job, const TrainOptions& options) {
  const std::string& memory = options.devices.device_memory;
  if (memory.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const int64_t there, ParseByteSize(memory));
  const RehearsedDevice& fullest = FullestOf(job);
  if (fullest.peak.total <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "it does not fit: ", fullest.name, " would hold ",
      FormatBytes(fullest.peak.total), " (", DescribeUse(fullest.peak),
      "), of --device_memory=", memory,
      "; cut the model over more devices, or take smaller microbatches"));
}

absl::Status Rehearse(const RehearsalSettings& settings,
                      const TrainOptions& options, const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const RehearsedJob job,
                          RehearseJob(settings, options, launch));
  std::printf("rehearsal without values: nothing is computed or allocated\n");
  if (!job.partition.empty()) std::printf("%s\n", job.partition.c_str());
  std::printf("%s", DescribeRehearsal(job, options).c_str());
  std::fflush(stdout);
  return CheckFits(job, options);
}

}  // namespace tandem
