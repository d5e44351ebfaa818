// What it costs a rank to make a group, by the number of ranks and by backend:
// processes of this machine that do nothing else.
//
//   bazel run -c opt //tools/bench:group_creation
//
// A row a group:
//   store ops    operations on the store, of the rank with the most
//   descriptors  that a rank holds afterwards for the group, sockets among them
//   time         until the slowest rank has it, from when all had the store
// "shm+gloo" has hosts of eight ranks (two where there are fewer than 16 in
// all), told apart by name alone.

#include <dirent.h>
#include <glog/logging.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"
#include "core/comm/communicator.h"
#include "core/process/spawn.h"
#include "core/program/exit_code.h"
#include "core/store/store.h"
#include "core/testing/counting_store.h"
#include "tools/bench/micro/spawned.h"

ABSL_FLAG(std::vector<std::string>, ranks,
          std::vector<std::string>({"2", "8", "32", "64"}),
          "numbers of processes");

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout(120);
constexpr int kMostRanks = 1024;

struct Cost {
  int64_t operations;
  int descriptors;
  int sockets;
  double milliseconds;
};

// What all processes of a run share.
struct Board {
  std::atomic<int> port;
  Cost costs[kMostRanks];
};

// Open descriptors of this process: all, and those that are sockets.
std::pair<int, int> CountDescriptors() {
  std::pair<int, int> counts;
  DIR* const directory = opendir("/proc/self/fd");
  PCHECK(directory != nullptr);
  while (const dirent* const entry = readdir(directory)) {
    char target[64] = {};
    const std::string path = absl::StrCat("/proc/self/fd/", entry->d_name);
    if (readlink(path.c_str(), target, sizeof(target) - 1) < 0) continue;
    ++counts.first;
    if (absl::StartsWith(target, "socket:")) ++counts.second;
  }
  closedir(directory);
  return counts;
}

std::string HostOf(const std::string& backend, int rank, int size) {
  if (backend != "shm+gloo") return "";
  return absl::StrCat("host ", rank / (size < 16 ? size / 2 : 8));
}

absl::StatusOr<StorePtr> MeetOn(Board& board, int rank) {
  if (rank == 0) {
    TANDEM_ASSIGN_OR_RETURN(HostedStore served,
                            ServeTcpStore("127.0.0.1", 0, kTimeout));
    board.port = served.port;
    return served.store;
  }
  while (board.port == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ConnectTcpStore("127.0.0.1", board.port, kTimeout);
}

absl::Status MakeOne(Board& board, const std::string& backend, int rank,
                     int size) {
  TANDEM_ASSIGN_OR_RETURN(const StorePtr store, MeetOn(board, rank));
  if (store->add("ready", 1) == size) store->set("go", std::string("1"));
  store->wait({"go"}, kTimeout);
  const auto counting = c10::make_intrusive<CountingStore>(store);
  CommunicatorOptions options;
  options.timeout = kTimeout;
  options.backend = backend == "gloo" ? "gloo" : "shm";
  options.host = HostOf(backend, rank, size);
  const auto before = CountDescriptors();
  const Clock::time_point start = Clock::now();
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> group,
      Communicator::Create(counting, rank, size, "world", options));
  Cost& cost = board.costs[rank];
  cost.milliseconds =
      std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const auto after = CountDescriptors();
  cost.operations = counting->operations();
  cost.descriptors = after.first - before.first;
  cost.sockets = after.second - before.second;
  return group->Barrier();  // rank 0 serves the store
}

absl::StatusOr<std::vector<std::string>> RowOf(const std::string& backend,
                                               int size) {
  void* const memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PCHECK(memory != MAP_FAILED);
  auto* const board = new (memory) Board();
  const absl::Status made = Spawn(
      [&](int rank) { return MakeOne(*board, backend, rank, size); }, size);
  Cost most{};
  for (int rank = 0; rank < size; ++rank) {
    const Cost& cost = board->costs[rank];
    most.operations = std::max(most.operations, cost.operations);
    most.descriptors = std::max(most.descriptors, cost.descriptors);
    most.sockets = std::max(most.sockets, cost.sockets);
    most.milliseconds = std::max(most.milliseconds, cost.milliseconds);
  }
  munmap(memory, sizeof(Board));
  TANDEM_RETURN_IF_ERROR(made);
  return std::vector<std::string>{
      absl::StrCat(size),
      backend,
      absl::StrCat(most.operations),
      absl::StrCat(most.descriptors),
      absl::StrCat(most.sockets),
      absl::StrFormat("%.0f ms", most.milliseconds)};
}

absl::Status Main() {
  std::vector<std::vector<std::string>> rows = {
      {"ranks", "backend", "store ops", "descriptors", "sockets", "time"}};
  for (const std::string& text : absl::GetFlag(FLAGS_ranks)) {
    int size = 0;
    if (!absl::SimpleAtoi(text, &size) || size < 2 || size > kMostRanks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--ranks: '", text, "' is no number from 2 to ", kMostRanks));
    }
    for (const char* backend : {"shm", "gloo", "shm+gloo"}) {
      TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> row,
                              RowOf(backend, size));
      rows.push_back(std::move(row));
    }
  }
  std::fputs(TextTable(rows).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  google::InitGoogleLogging(argv[0]);
  return tandem::Conclude("group_creation", tandem::Main());
}
