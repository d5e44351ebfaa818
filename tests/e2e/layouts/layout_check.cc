#include "tests/e2e/layouts/layout_check.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

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

// As bits: 0 is not -0.
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

// What a rank of a replica has; `missing` are the names that no rank of the
// replica before it had.
void CompareState(const NamedTensors& state, const NamedTensors& expected,
                  size_t rank, std::set<std::string>* missing,
                  Complaints* complaints) {
  const std::map<std::string, at::Tensor> tensors(expected.begin(),
                                                  expected.end());
  for (const auto& [name, tensor] : state) {
    const auto its = tensors.find(name);
    const bool is_new = missing->erase(name) > 0;
    if (its != tensors.end() && is_new && AreSame(tensor, its->second)) {
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
  // Of all parts, and as many as there would be if no two shared any.
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
    const std::set<const void*> its(stage.storages.begin(),
                                    stage.storages.end());
    memories_of_parts += its.size();
    memories.insert(its.begin(), its.end());
  }
};

}  // namespace

Complaints Differences(const LayoutCell& cell, const LayoutRun& run,
                       const LayoutRun& one_device) {
  const RankReport& expected = one_device.front();
  Complaints complaints;
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
  return complaints;
}

Complaints Confusions(const LayoutCell& cell, const LayoutRun& run) {
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
  const auto parts = static_cast<size_t>(ScheduleOf(cell)->stages);
  const size_t devices = replicas * static_cast<size_t>(cell.stages);
  Count(seen.samples, replicas, "sets of samples", &complaints);
  Count(seen.parts, replicas * parts, "parts of the model", &complaints);
  Count(seen.parameters, seen.names, "parameters", &complaints);
  Count(seen.memories, seen.memories_of_parts, "memories", &complaints);
  Count(seen.threads, devices, "threads", &complaints);
  Count(seen.devices, cell.device == "sim" ? devices : 1, "devices",
        &complaints);
  return complaints;
}

Complaints Idleness(const LayoutRun& run) {
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

absl::StatusOr<const LayoutRun*> OneDevicesRun(const LayoutCell& cell) {
  static auto* const runs = new std::map<std::string, LayoutRun>;
  const LayoutCell one = OneDevice(cell);
  auto known = runs->find(ToString(one));
  if (known == runs->end()) {
    TANDEM_ASSIGN_OR_RETURN(LayoutRun run, RunLayout(one));
    known = runs->emplace(ToString(one), std::move(run)).first;
  }
  return &known->second;
}

absl::StatusOr<LayoutResult> TryLayout(const LayoutCell& cell,
                                       LayoutMutation mutation) {
  TANDEM_ASSIGN_OR_RETURN(const LayoutRun* const one_device,
                          OneDevicesRun(cell));
  TANDEM_ASSIGN_OR_RETURN(const LayoutRun run, RunLayout(cell, mutation));
  LayoutResult result;
  result.differences = Differences(cell, run, *one_device);
  result.others = Confusions(cell, run);
  for (auto& each : Idleness(run)) result.others.push_back(std::move(each));
  return result;
}

}  // namespace tandem
