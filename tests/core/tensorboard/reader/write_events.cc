// Writes event files of a job that was broken off and went on, into the folder
// that is given: read_events.py has TensorBoard read them.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/tensorboard/event_writer.h"

namespace tandem {
namespace {

// A PNG of two rows of three grey pixels.
constexpr char kPng[] =
    "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAAAAAC4HznGAAAAEElEQVR4nGNgaPjP8L+B"
    "AQAMAAL/qg5+vgAAAABJRU5ErkJggg==";

// Events after step `from`, up to step `to`.
absl::Status WriteEvents(const std::string& folder, int64_t from, int64_t to,
                         bool goes_on) {
  EventWriterOptions options;
  int64_t seconds = 1700000000 + 1000 * from;
  options.clock = [&seconds] { return absl::FromUnixSeconds(seconds); };
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<EventWriter> events,
                          EventWriter::Create(folder, options));
  TANDEM_RETURN_IF_ERROR(events->AddSessionStart(goes_on ? from + 1 : 0));
  if (!goes_on) {
    TANDEM_RETURN_IF_ERROR(events->AddText(
        "settings", "| flag | value |\n|---|---|\n| größe | 3 |", 0));
  }
  for (int64_t step = from + 1; step <= to; ++step) {
    ++seconds;
    const auto number = static_cast<double>(step);
    TANDEM_RETURN_IF_ERROR(
        events->AddScalar("train/loss", goes_on ? 1 / number : -number, step));
    Summary summary;
    TANDEM_RETURN_IF_ERROR(summary.AddScalar("train/lr", 0.001 * number));
    TANDEM_RETURN_IF_ERROR(summary.AddScalar("perf/step_ms", std::nan("")));
    TANDEM_RETURN_IF_ERROR(events->AddSummary(summary, step));
    const at::Tensor weights =
        (at::arange(-50, 51, at::kFloat) * 0.01 * number).view({1, 101});
    TANDEM_RETURN_IF_ERROR(
        events->AddHistogram("weights/fc.weight", weights, step));
  }
  TANDEM_RETURN_IF_ERROR(events->AddHistogram("zeros", at::zeros({5}), to));
  TANDEM_RETURN_IF_ERROR(events->AddHistogram(
      "wide", at::tensor({-1e30f, -2.f, 0.f, 1e-20f, 1e30f, NAN}), to));
  TANDEM_RETURN_IF_ERROR(events->AddText("sample", "later", to));
  std::string png;
  if (!absl::Base64Unescape(kPng, &png)) {
    return absl::InternalError("the image is no base64");
  }
  TANDEM_RETURN_IF_ERROR(events->AddImage("image", png, 2, 3, to));
  // Beyond 32 bits.
  return events->AddScalar("far", 1, int64_t{1} << 40);
}

absl::Status WriteBoth(const std::string& folder) {
  TANDEM_RETURN_IF_ERROR(WriteEvents(folder, 0, 5, /*goes_on=*/false));
  return WriteEvents(folder, 3, 7, /*goes_on=*/true);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const absl::Status written = tandem::WriteBoth(argv[1]);
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.ToString().c_str());
  return written.ok() ? 0 : 1;
}
