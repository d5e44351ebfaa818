#include "tools/bench/checkpoint/suite.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/host_copy.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/digest/sha256.h"
#include "core/files/user_path.h"
#include "core/program/progress.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/process/program.h"
#include "tools/bench/process/side.h"
#include "tools/bench/suite/suite.h"

namespace tandem {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kTimeout(5);

// Tensor i holds i, i + 1, ...: as the peer makes them.
NamedTensors MakeTensors(const CheckpointState& state) {
  NamedTensors tensors;
  for (int64_t i = 0; i < state.tensors; ++i) {
    tensors.emplace_back(absl::StrCat("layers.", i, ".weight"),
                         at::arange(i, i + state.numbers, at::kFloat));
  }
  return tensors;
}

std::string TensorsDigest(const NamedTensors& tensors) {
  Sha256 hash;
  for (const auto& [name, tensor] : tensors) {
    hash.Update(tensor.const_data_ptr(), tensor.nbytes());
  }
  return hash.HexDigest();
}

absl::Status Save(const StatePart& part, const std::string& path) {
  FolderSave save;
  save.path = path;
  save.metadata = CheckpointMetadata(TrainingProgress());
  return SaveFolder(save, part).status();
}

// Into `tensors`, as a job's start does it: all is verified first.
absl::Status Load(const std::string& path, const NamedTensors& tensors) {
  TANDEM_ASSIGN_OR_RETURN(const StoredCheckpoint stored,
                          OpenCheckpointAt(path));
  std::map<std::string, const StoredTensor*> by_name;
  for (const StoredTensor& each : stored.model) {
    TANDEM_RETURN_IF_ERROR(Verify(each));
    by_name[each.info.name] = &each;
  }
  for (const auto& [name, tensor] : tensors) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return absl::DataLossError(name);
    TANDEM_RETURN_IF_ERROR(ReadInto(*found->second, tensor));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Time(const std::function<absl::Status()>& work) {
  const auto start = Clock::now();
  TANDEM_RETURN_IF_ERROR(work());
  const std::chrono::duration<double, std::milli> taken = Clock::now() - start;
  return taken.count();
}

std::vector<std::string> Operations() { return {"save", "load", "stall"}; }

// A state, and what each side does with it.
class Contest {
 public:
  Contest(const CheckpointBench& bench, const CheckpointState& state,
          Side& peer, Progress& progress)
      : bench_(bench),
        state_(state),
        peer_(peer),
        progress_(progress),
        tensors_(MakeTensors(state)),
        path_(bench.folder + "/ours") {
    part_.tensors = tensors_;
  }

  absl::StatusOr<std::vector<CheckpointResult>> Run() {
    TANDEM_RETURN_IF_ERROR(
        Ask({"make", state_.tensors, state_.numbers, bench_.folder}).status());
    for (const std::string& operation : Operations()) {
      TANDEM_RETURN_IF_ERROR(OurTime(operation).status());
      TANDEM_RETURN_IF_ERROR(PeerTime(operation).status());
    }
    TANDEM_RETURN_IF_ERROR(CheckLoaded());
    std::vector<CheckpointResult> results;
    for (const std::string& operation : Operations()) {
      progress_.BeginPart(absl::StrCat(state_.name, ", ", operation));
      TANDEM_ASSIGN_OR_RETURN(results.emplace_back(), Measure(operation));
    }
    return results;
  }

 private:
  absl::StatusOr<json> Ask(const json& command) {
    return peer_.AskAlone(command, kTimeout);
  }

  absl::StatusOr<double> PeerTime(const std::string& operation) {
    TANDEM_ASSIGN_OR_RETURN(const json answer, Ask(json::array({operation})));
    return answer.at("ms").get<double>();
  }

  absl::StatusOr<double> OurTime(const std::string& operation) {
    if (operation == "save") {
      std::filesystem::remove_all(path_);
      return Time([&] { return Save(part_, path_); });
    }
    if (operation == "load") {
      return Time([&] { return Load(path_, tensors_); });
    }
    return Time([&] { return copy_.Take(part_).status(); });
  }

  absl::Status CheckLoaded() {
    const std::string expected = TensorsDigest(MakeTensors(state_));
    for (const auto& [name, tensor] : tensors_) tensor.zero_();
    TANDEM_RETURN_IF_ERROR(Load(path_, tensors_));
    TANDEM_ASSIGN_OR_RETURN(const json theirs, Ask(json::array({"digest"})));
    if (TensorsDigest(tensors_) == expected && theirs["sha256"] == expected) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(
        state_.name, ": what was loaded is not what was saved; tandem ",
        TensorsDigest(tensors_), ", its peer ", theirs["sha256"].dump(),
        ", expected ", expected));
  }

  absl::StatusOr<CheckpointResult> Measure(const std::string& operation) {
    CheckpointResult result;
    result.state = state_.name;
    result.operation = operation;
    result.bytes =
        state_.tensors * state_.numbers * static_cast<int64_t>(sizeof(float));
    TANDEM_RETURN_IF_ERROR(TakeTurns(
        bench_.rounds, [&] { return OurTime(operation); },
        [&] { return PeerTime(operation); }, result.ours_ms, result.peer_ms));
    return result;
  }

  const CheckpointBench& bench_;
  const CheckpointState& state_;
  Side& peer_;
  Progress& progress_;
  const NamedTensors tensors_;
  const std::string path_;
  StatePart part_;
  HostCopy copy_;
};

// A model of many layers, and one of few: equally many bytes.
std::vector<CheckpointState> States(int64_t megabytes) {
  const auto state = [&](const char* name, int64_t numbers) {
    const int64_t tensors = megabytes * 250000 / numbers;
    return CheckpointState{name, tensors, numbers};
  };
  return {state("tensors of 64 kB", 16000), state("tensors of 16 MB", 4000000)};
}

absl::StatusOr<std::string> FolderFromFlag(const std::string& output,
                                           const std::string& scratch) {
  if (output.empty()) return scratch;
  // A name of this run's own: the folder is deleted at the end.
  return FolderFor(std::filesystem::path(scratch).filename().string(),
                   UserPath(output));
}

}  // namespace

absl::StatusOr<std::vector<CheckpointResult>> CompareCheckpoints(
    const CheckpointBench& bench) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Side> peer,
      StartPython(bench.peer, "OMP_NUM_THREADS", bench.folder));
  TANDEM_RETURN_IF_ERROR(BindToCore(CoreNumber(0, 1)));
  at::set_num_threads(1);  // on one core more would wait for each other
  Progress progress(
      "checkpoints",
      static_cast<int64_t>(bench.states.size() * Operations().size()),
      Progress::ToStderr());
  std::vector<CheckpointResult> all;
  for (const CheckpointState& state : bench.states) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<CheckpointResult> results,
                            Contest(bench, state, *peer, progress).Run());
    all.insert(all.end(), results.begin(), results.end());
  }
  return all;
}

std::vector<Table> CheckpointTables(
    const std::vector<CheckpointResult>& results) {
  Table cases = {"cases",
                 {{"state"},
                  {"operation"},
                  {"bytes"},
                  {"ours", "ms", 1},
                  {"ours", "MB/s", 0},
                  {"peer", "ms", 1},
                  {"peer", "MB/s", 0},
                  {"ratio", "", 2},
                  {"ratio_min", "", 2},
                  {"ratio_max", "", 2}}};
  for (const CheckpointResult& each : results) {
    const Ratio ratio = PairedRatio(each.peer_ms, each.ours_ms);
    cases.Add({each.state, each.operation, each.bytes, Median(each.ours_ms),
               MegabytesPerSecond(each.bytes, each.ours_ms),
               Median(each.peer_ms),
               MegabytesPerSecond(each.bytes, each.peer_ms), ratio.ratio,
               ratio.min, ratio.max});
  }
  return {cases};
}

absl::StatusOr<SuiteReport> RunCheckpointSuite(const BenchFlags& flags,
                                               const std::string& folder) {
  CheckpointBench bench;
  bench.rounds = flags.rounds.value_or(7);
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("rounds", bench.rounds, 1));
  TANDEM_RETURN_IF_ERROR(CheckAtLeast("megabytes", flags.megabytes, 16));
  TANDEM_ASSIGN_OR_RETURN(const std::string python,
                          PythonFromFlag(flags.python));
  TANDEM_ASSIGN_OR_RETURN(const std::string script,
                          Runfile("tools/bench/peers/checkpoints.py"));
  bench.peer = {"/usr/bin/env", python, script};
  TANDEM_ASSIGN_OR_RETURN(bench.folder, FolderFromFlag(flags.output, folder));
  bench.states = States(flags.megabytes);
  const auto results = CompareCheckpoints(bench);
  if (bench.folder != folder) {
    std::error_code ignored;
    std::filesystem::remove_all(bench.folder, ignored);
  }
  TANDEM_RETURN_IF_ERROR(results.status());
  return SuiteReport{CheckpointTables(*results)};
}

}  // namespace tandem
