#include "tools/bench/micro/spawned.h"

#include <ATen/Parallel.h>
#include <glog/logging.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/process/spawn.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

constexpr std::chrono::seconds kTimeout(60);

}  // namespace

absl::Status SpawnRanks(
    int size,
    const std::function<absl::Status(const StorePtr& store, int rank)>& work) {
  char folder[] = "/tmp/tandem-bench-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr) << "mkdtemp";
  const std::string path = absl::StrCat(folder, "/store");
  const auto run = [&](int rank) -> absl::Status {
    at::set_num_threads(1);
    TANDEM_ASSIGN_OR_RETURN(const StorePtr store,
                            OpenFileStore(path, rank, size, "", kTimeout));
    return work(store, rank);
  };
  const absl::Status status = Spawn(run, size);
  unlink(path.c_str());
  rmdir(folder);
  return status;
}

absl::StatusOr<std::vector<double>> MediansInTurns(
    int rounds, size_t ways,
    absl::FunctionRef<absl::StatusOr<double>(size_t way)> time) {
  std::vector<std::vector<double>> times(ways);
  for (int round = -1; round < rounds; ++round) {
    for (size_t way = 0; way < ways; ++way) {
      TANDEM_ASSIGN_OR_RETURN(const double taken, time(way));
      if (round >= 0) times[way].push_back(taken);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& each : times) {
    medians.push_back(Median(each));
  }
  return medians;
}

}  // namespace tandem
