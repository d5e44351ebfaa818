#include "tools/trainer/rehearsal/rehearsal_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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

// What came to it from other devices.
double ReceivedBy(const RehearsedDevice& device) {
  return device.traffic.copies.bytes + device.traffic.messages.bytes;
}

// What they say to each other: in a rank, and between ranks.
struct JobTraffic {
  sim::CountedTraffic links;
  sim::CountedTraffic network;

  bool any() const { return links.bytes + network.bytes > 0; }
  bool takes_time() const { return links.seconds + network.seconds > 0; }
  // The flags of the speeds that are not given.
  std::string MissingSpeeds() const {
    std::vector<std::string> missing;
    if (links.bytes > 0 && links.seconds <= 0) {
      missing.emplace_back("--sim_link_bandwidth");
    }
    if (network.bytes > 0 && network.seconds <= 0) {
      missing.emplace_back("--sim_network_bandwidth");
    }
    return absl::StrJoin(missing, " and ");
  }
};

JobTraffic TotalTraffic(const RehearsedJob& job) {
  JobTraffic all;
  for (const RehearsedDevice& each : job.devices) {
    const sim::DeviceTraffic& traffic = each.traffic;
    all.links.bytes += traffic.copies.bytes;
    all.links.seconds += traffic.copies.seconds;
    for (const auto& part : {traffic.messages, traffic.collectives}) {
      all.network.bytes += part.bytes;
      all.network.seconds += part.seconds;
    }
  }
  return all;
}

// What a table has columns for.
struct Columns {
  bool times;
  bool traffic;
};

Row TableHead(const Columns& columns) {
  Row head = {"device", "peak"};
  for (int i = 0; i < kMemoryCategories; ++i) {
    head.emplace_back(MemoryCategoryName(static_cast<MemoryCategory>(i)));
  }
  head.push_back("TFLOP");
  if (columns.times) {
    head.insert(head.end(), {"forward ms", "backward ms", "update ms"});
  }
  if (columns.traffic) {
    head.insert(head.end(), {"received", "in collectives"});
  }
  if (columns.times && columns.traffic) head.push_back("waits ms");
  return head;
}

Row DeviceRow(const RehearsedDevice& device, const Columns& columns) {
  Row row = {device.name, FormatBytes(device.peak.total)};
  for (const int64_t bytes : device.peak.by_category) {
    row.push_back(FormatBytes(bytes));
  }
  row.push_back(absl::StrFormat("%.4g", FlopsOfStep(device) / 1e12));
  if (columns.times) {
    for (const sim::CountedWork& part :
         {device.work.forward, device.work.backward, device.work.rest}) {
      row.push_back(Milliseconds(part.seconds));
    }
  }
  if (columns.traffic) {
    row.push_back(FormatBytes(static_cast<int64_t>(ReceivedBy(device))));
    row.push_back(
        FormatBytes(static_cast<int64_t>(device.traffic.collectives.bytes)));
  }
  if (columns.times && columns.traffic) {
    row.push_back(Milliseconds(device.traffic.waited));
  }
  return row;
}

std::string DeviceTable(const RehearsedJob& job) {
  const Columns columns = {job.step > 0, TotalTraffic(job).any()};
  std::vector<Row> rows = {TableHead(columns)};
  for (const RehearsedDevice& each : job.devices) {
    rows.push_back(DeviceRow(each, columns));
  }
  return TextTable(rows);
}

std::string DescribeCommunication(const RehearsedJob& job) {
  const JobTraffic traffic = TotalTraffic(job);
  if (!traffic.any()) return "";
  const std::string missing = traffic.MissingSpeeds();
  if (!traffic.takes_time()) {
    return absl::StrCat("; communication takes no time: give ", missing);
  }
  return absl::StrCat(
      "; ", Milliseconds(job.waited), " ms of it waits for collectives",
      missing.empty()
          ? ""
          : absl::StrCat("; some communication takes no time: give ", missing));
}

std::string DescribeStep(const RehearsedJob& job, const TrainOptions& options) {
  if (job.step <= 0) {
    return "no times: give --peak_tflops, --sim_memory_bandwidth or both\n";
  }
  double flops = 0;
  for (const RehearsedDevice& each : job.devices) flops += FlopsOfStep(each);
  return absl::StrFormat(
      "a step would take %s ms: %.4g samples/s, %.4g TFLOP/s; bubble %.1f %% "
      "of the busiest device's work%s\n",
      Milliseconds(job.step),
      static_cast<double>(ResolvedBatchSize(options)) / job.step,
      flops / job.step / 1e12, 100 * job.bubble, DescribeCommunication(job));
}

const RehearsedDevice& Fullest(const RehearsedJob& job) {
  return *std::max_element(
      job.devices.begin(), job.devices.end(),
      [](const auto& a, const auto& b) { return a.peak.total < b.peak.total; });
}

// The ways that this job does not go yet, the cheapest first.
std::string WaysToFit(const TrainOptions& options) {
  const bool is_text =
      options.dataset == "tokens" || options.dataset == "synthetic_tokens";
  const bool keeps_all = options.checkpoint_every == 0 &&
                         options.checkpoint_layers.empty() &&
                         options.pipeline.checkpoint_activations == "never";
  std::vector<std::string> ways;
  if (keeps_all) {
    ways.emplace_back("compute activations again (--checkpoint_every=1)");
  }
  if (is_text && options.loss_chunk == 0) {
    ways.emplace_back("make the loss of fewer tokens at once (--loss_chunk)");
  }
  if (is_text && options.pipeline.tensor == 1) {
    ways.emplace_back("share layers among ranks (--tensor)");
  }
  ways.emplace_back("take smaller microbatches");
  ways.emplace_back("cut the model over more devices");
  const std::string last = ways.back();
  ways.pop_back();
  return absl::StrCat(absl::StrJoin(ways, ", "), ", or ", last);
}

}  // namespace

std::string DescribeRehearsal(const RehearsedJob& job,
                              const TrainOptions& options) {
  const RehearsedDevice& fullest = Fullest(job);
  const std::string& there = options.devices.device_memory;
  return absl::StrCat(
      DeviceTable(job), DescribeStep(job, options), "fullest: ", fullest.name,
      " with ", FormatBytes(fullest.peak.total),
      there.empty() ? "" : absl::StrCat(" of --device_memory=", there), "\n");
}

absl::Status CheckFits(const RehearsedJob& job, const TrainOptions& options) {
  const std::string& memory = options.devices.device_memory;
  if (memory.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const int64_t there, ParseByteSize(memory));
  const RehearsedDevice& fullest = Fullest(job);
  if (fullest.peak.total <= there) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "it does not fit: ", fullest.name, " would hold ",
      FormatBytes(fullest.peak.total), " (", DescribeUse(fullest.peak),
      "), of --device_memory=", memory, "; ", WaysToFit(options)));
}

absl::Status Rehearse(const RehearsalSettings& settings,
                      const TrainOptions& options, const Launch& launch) {
  TANDEM_ASSIGN_OR_RETURN(const RehearsedJob job,
                          RehearseJob(settings, options, launch));
  if (launch.rank != 0) return absl::OkStatus();
  std::printf("rehearsal without values: nothing is computed or allocated\n");
  if (!job.partition.empty()) std::printf("%s\n", job.partition.c_str());
  std::printf("%s", DescribeRehearsal(job, options).c_str());
  std::fflush(stdout);
  return CheckFits(job, options);
}

}  // namespace tandem
