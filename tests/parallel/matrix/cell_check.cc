#include "tests/parallel/matrix/cell_check.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

using Complaints = std::vector<std::string>;

// The same bits: 0 is not -0.
bool AreSame(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

void CompareLosses(const std::vector<double>& losses,
                   const std::vector<double>& expected, size_t rank,
                   Complaints* complaints) {
  if (losses.size() != expected.size()) {
    complaints->push_back(absl::StrCat(losses.size(), " losses on rank ", rank,
                                       ", not ", expected.size()));
    return;
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses[i] == expected[i]) continue;
    complaints->push_back(absl::StrCat("loss of step ", i, " on rank ", rank));
  }
}

// Between two tensors, relative to the second one's greatest value.
double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  if (a.equal(b) || a.numel() == 0) return 0;
  const at::Tensor x = a.to(at::kDouble);
  const at::Tensor y = b.to(at::kDouble);
  const double scale = y.abs().max().item<double>();
  return (x - y).abs().max().item<double>() / (scale > 0 ? scale : 1);
}

void Note(double difference, const std::string& where, double tolerance,
          Differences* differences) {
  // Both hold for what is no number, too.
  if (!(difference <= differences->greatest)) {
    differences->greatest = difference;
    differences->where = where;
  }
  if (!(difference <= tolerance)) {
    differences->found.push_back(absl::StrCat(difference, " in ", where));
  }
}

// All ranks together, in numbers.
Differences CompareNumbers(const CellRun& run, const RankReport& expected,
                           double tolerance) {
  Differences differences;
  std::map<std::string, at::Tensor> state;
  for (size_t rank = 0; rank < run.size(); ++rank) {
    state.insert(run[rank].state.begin(), run[rank].state.end());
    const std::vector<double>& losses = run[rank].losses;
    if (losses.size() != expected.losses.size()) {
      CompareLosses(losses, expected.losses, rank, &differences.found);
      continue;
    }
    for (size_t i = 0; i < losses.size(); ++i) {
      const double loss = expected.losses[i];
      Note(std::abs(losses[i] - loss) / std::abs(loss),
           absl::StrCat("loss of step ", i, " on rank ", rank), tolerance,
           &differences);
    }
  }
  for (const auto& [name, tensor] : expected.state) {
    const auto entry = state.find(name);
    if (entry == state.end()) {
      differences.found.push_back(absl::StrCat(name, " is missing"));
      continue;
    }
    Note(RelativeDifference(entry->second, tensor), name, tolerance,
         &differences);
    state.erase(entry);
  }
  for (const auto& each : state) {
    differences.found.push_back(absl::StrCat(each.first, " is one too many"));
  }
  return differences;
}

// What a rank of a replica has; `missing` are the names that no rank of the
// replica before it had.
void CompareState(const NamedTensors& state, const NamedTensors& expected,
                  size_t rank, std::set<std::string>* missing,
                  Complaints* complaints) {
  const std::map<std::string, at::Tensor> tensors(expected.begin(),
                                                  expected.end());
  for (const auto& [name, tensor] : state) {
    const auto entry = tensors.find(name);
    const bool is_new = missing->erase(name) > 0;
    if (entry != tensors.end() && is_new && AreSame(tensor, entry->second)) {
      continue;
    }
    complaints->push_back(absl::StrCat(name, " on rank ", rank,
                                       is_new ? "" : " is one too many"));
  }
}

std::set<std::string> NamesOf(const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& each : tensors) names.insert(each.first);
  return names;
}

// Whether there are as many distinct ones as there should be.
template <typename T>
void Count(const std::set<T>& distinct, size_t expected, const char* what,
           Complaints* complaints) {
  if (distinct.size() == expected) return;
  complaints->push_back(
      absl::StrCat(distinct.size(), " distinct ", what, ", not ", expected));
}

// What is seen of a run, all ranks together.
struct Seen {
  std::set<std::string> samples;
  std::set<std::pair<int, int>> parts;               // replica, number
  std::set<std::pair<int, std::string>> parameters;  // replica, name
  size_t names = 0;                                  // of all parts
  // Memories of all parts, and how many there would be if no two shared any.
  std::set<const void*> memories;
  size_t memories_of_parts = 0;
  std::set<std::thread::id> threads;
  std::set<std::string> devices;

  void Add(int replica, const StageReport& stage) {
    parts.emplace(replica, stage.number);
    threads.insert(stage.thread);
    devices.insert(stage.device.str());
    names += stage.parameters.size();
    for (const auto& each : stage.parameters) parameters.emplace(replica, each);
    const std::set<const void*> stage_memories(stage.storages.begin(),
                                               stage.storages.end());
    memories_of_parts += stage_memories.size();
    memories.insert(stage_memories.begin(), stage_memories.end());
  }
};

}  // namespace

Differences CompareRuns(const MatrixCell& cell, const CellRun& run,
                        const CellRun& reference) {
  const RankReport& expected = reference.front();
  if (!cell.reproducible) return CompareNumbers(run, expected, Tolerance(cell));
  Differences differences;
  Complaints& complaints = differences.found;
  std::set<std::string> missing;
  for (size_t rank = 0; rank < run.size(); ++rank) {
    if (rank % static_cast<size_t>(cell.ranks_of_replica()) == 0) {
      missing = NamesOf(expected.state);
    }
    CompareLosses(run[rank].losses, expected.losses, rank, &complaints);
    CompareState(run[rank].state, expected.state, rank, &missing, &complaints);
    if ((rank + 1) % static_cast<size_t>(cell.ranks_of_replica()) != 0) {
      continue;
    }
    for (const std::string& name : missing) {
      complaints.push_back(absl::StrCat(name, " is on no rank up to ", rank));
    }
  }
  return differences;
}

double Tolerance(const MatrixCell& cell) {
  if (cell.reproducible || cell.microbatches == 1) return 0;
  return cell.model[0] == 'r' ? 1e-4 : 2e-5;
}

Complaints Confusions(const MatrixCell& cell, const CellRun& run) {
  Complaints complaints;
  Seen seen;
  for (size_t rank = 0; rank < run.size(); ++rank) {
    const RankReport& report = run[rank];
    if (report.strategy != cell.strategy()) {
      complaints.push_back(absl::StrCat("strategy ", report.strategy, ", not ",
                                        cell.strategy()));
    }
    if (!report.samples.empty()) seen.samples.insert(report.samples);
    const int replica = static_cast<int>(rank) / cell.ranks_of_replica();
    for (const StageReport& stage : report.stages) {
      seen.Add(replica, stage);
      if (stage.layers > 0 && !stage.parameters.empty()) continue;
      complaints.push_back(absl::StrCat("stage ", stage.number, " is empty"));
    }
  }
  const auto replicas = static_cast<size_t>(cell.replicas);
  const auto parts = static_cast<size_t>(cell.stages);
  const size_t devices =
      replicas * static_cast<size_t>(cell.devices_of_replica());
  Count(seen.samples, replicas, "sets of samples", &complaints);
  Count(seen.parts, replicas * parts, "parts of the model", &complaints);
  Count(seen.parameters, seen.names, "parameters", &complaints);
  Count(seen.memories, seen.memories_of_parts, "memories", &complaints);
  Count(seen.threads, devices, "threads", &complaints);
  Count(seen.devices, cell.device == "sim" ? devices : 1, "devices",
        &complaints);
  return complaints;
}

Complaints Idleness(const CellRun& run) {
  Complaints complaints;
  for (const RankReport& each : run) {
    for (const std::string& name : each.unmoved) {
      complaints.push_back(absl::StrCat(name, " did not move"));
    }
    for (const double loss : each.losses) {
      if (std::isfinite(loss)) continue;
      complaints.push_back(absl::StrCat("a loss is ", loss));
    }
  }
  return complaints;
}

absl::StatusOr<const CellRun*> ReferenceRun(const MatrixCell& cell) {
  static auto* const all = new std::map<bool, std::map<std::string, CellRun>>;
  auto& runs = (*all)[cell.reproducible];
  const MatrixCell one = ReferenceCell(cell);
  auto known = runs.find(ToString(one));
  if (known == runs.end()) {
    // Models in one piece are large, and cells of one follow each other.
    if (!cell.reproducible) runs.clear();
    TANDEM_ASSIGN_OR_RETURN(
        CellRun run, cell.reproducible ? RunCell(one) : RunInOnePiece(one));
    known = runs.emplace(ToString(one), std::move(run)).first;
  }
  return &known->second;
}

absl::StatusOr<CellResult> TryCell(const MatrixCell& cell,
                                   CellMutation mutation) {
  TANDEM_ASSIGN_OR_RETURN(const CellRun* const reference, ReferenceRun(cell));
  TANDEM_ASSIGN_OR_RETURN(const CellRun run, RunCell(cell, mutation));
  CellResult result;
  result.differences = CompareRuns(cell, run, *reference);
  if (cell.reproducible) {
    result.others = Confusions(cell, run);
    for (auto& each : Idleness(run)) result.others.push_back(std::move(each));
  } else if (std::none_of(run.begin(), run.end(), [](const RankReport& each) {
               return each.has_moved;
             })) {
    result.others.push_back("no weight moved");
  }
  return result;
}

}  // namespace tandem
