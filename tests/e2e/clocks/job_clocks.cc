#include "tests/e2e/clocks/job_clocks.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

namespace tandem {
namespace {

constexpr int64_t kHour = 3600;
constexpr std::chrono::milliseconds kBetweenJumps(100);
constexpr char kLibrary[] = "tests/e2e/clocks/libjumping_clock.so";

}  // namespace

JobClocks::JobClocks() : path_(NewFolder("clocks") + "/page") {
  const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  PCHECK(file >= 0) << path_;
  PCHECK(ftruncate(file, sizeof(ClockPage)) == 0);
  void* const page = mmap(nullptr, sizeof(ClockPage), PROT_READ | PROT_WRITE,
                          MAP_SHARED, file, 0);
  PCHECK(page != MAP_FAILED);
  close(file);
  page_ = static_cast<ClockPage*>(page);
}

JobClocks::~JobClocks() {
  Stop();
  munmap(page_, sizeof(ClockPage));
}

ProgramOptions JobClocks::Options(ProgramOptions options) const {
  options.environment[kClockPageVariable] = path_;
  options.environment["LD_PRELOAD"] = std::filesystem::absolute(kLibrary);
  return options;
}

void JobClocks::Jump(int hours) {
  for (ClockPage::Process& each : page_->processes)
    each.offset += kHour * hours;
}

void JobClocks::Start(const std::vector<int>& hours) {
  Stop();
  stopped_ = false;
  thread_ = std::thread([this, hours] {
    for (size_t next = 0; !stopped_; ++next) {
      for (size_t i = 0; i < kClockProcesses; ++i) {
        page_->processes[i].offset += kHour * hours[(next + i) % hours.size()];
      }
      std::this_thread::sleep_for(kBetweenJumps);
    }
  });
}

void JobClocks::Stop() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

int64_t JobClocks::JumpsSeen(int rank) const {
  return page_->processes[rank + 1].jumps_seen;
}

}  // namespace tandem
