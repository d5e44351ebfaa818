#include "tools/bench/process/job.h"

#include <poll.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/process/process_end.h"
#include "core/process/subprocess.h"
#include "tools/bench/process/line_reader.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void TakeLines(LineReader& reader, std::string& text) {
  reader.Pump();
  while (const auto line = reader.Next()) absl::StrAppend(&text, *line, "\n");
}

// Until both streams have ended.
void ReadAll(const Subprocess& job, Clock::time_point start,
             Clock::time_point deadline, const std::string& mark, JobEnd& end) {
  LineReader out(job.out_fd());
  LineReader err(job.err_fd());
  while ((out.fd() >= 0 || err.fd() >= 0) && Clock::now() < deadline) {
    pollfd ready[] = {{out.fd(), POLLIN, 0}, {err.fd(), POLLIN, 0}};
    poll(ready, 2, /*timeout=*/1000);
    TakeLines(out, end.out);
    if (!mark.empty() && end.seconds_to_mark == 0 &&
        absl::StrContains(end.out, mark)) {
      end.seconds_to_mark = SecondsSince(start);
    }
    TakeLines(err, end.err);
  }
}

}  // namespace

absl::StatusOr<JobEnd> RunJob(const std::vector<std::string>& command,
                              const Environment& environment,
                              std::chrono::milliseconds timeout,
                              const std::string& mark) {
  SubprocessOptions process;
  process.program = command.front();
  process.argv = command;
  process.environment = environment.ToStrings();
  process.out = SubprocessOptions::Stream::kPipe;
  process.err = SubprocessOptions::Stream::kPipe;
  const auto start = Clock::now();
  TANDEM_ASSIGN_OR_RETURN(Subprocess job, Subprocess::Start(process));
  JobEnd end;
  ReadAll(job, start, start + timeout, mark, end);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      start + timeout - Clock::now());
  const auto code = job.Wait(std::max(left, std::chrono::milliseconds(0)));
  end.seconds = SecondsSince(start);
  if (code == 0) return end;
  return absl::InternalError(absl::StrCat(
      command.front(), ": ",
      code.has_value() ? DescribeEnd(*code)
                       : absl::StrCat("no end within ", timeout.count(), " ms"),
      ": ", end.err));
}

}  // namespace tandem
