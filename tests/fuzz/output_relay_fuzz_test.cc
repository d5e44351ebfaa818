// What ranks write, as the launcher passes it on and tells of it
// (core/launch/output_relay.h): any bytes, in pieces of any length.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "core/launch/output_relay.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

constexpr size_t kLines = 3;

// The first byte says how long a piece is, at most.
void Relay(absl::string_view input, const std::string& prefix) {
  const size_t piece = input.empty() ? 1 : 1 + uint8_t(input[0]) * 16;
  int ends[2];
  PCHECK(pipe2(ends, O_NONBLOCK) == 0);
  const int null = open("/dev/null", O_WRONLY);
  OutputSink sink(null);
  OutputRelay relay(ends[0], &sink, prefix, kLines);
  while (!input.empty()) {
    const size_t size = std::min(piece, input.size());
    PCHECK(write(ends[1], input.data(), size) == static_cast<ssize_t>(size));
    relay.Pump();
    input.remove_prefix(size);
  }
  close(ends[1]);
  relay.Finish();
  CHECK_LE(relay.LastLinesRead().size(), kLines);
  for (const std::string& line : relay.LastLinesRead()) {
    CHECK(line.find('\n') == std::string::npos);
  }
  close(ends[0]);
  close(null);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::Relay(tandem::InputText(data, size), "");
  tandem::Relay(tandem::InputText(data, size), "[0] ");
  return 0;
}
