#include "tools/bench/pipeline_case.h"

#include <algorithm>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tools/bench/cases_among.h"

namespace tandem {
namespace {

constexpr char kReproducible[] = "reproducible";

// A schedule of tandem's and what it is compared with.
struct Pairing {
  const char* ours;
  int our_chunks;
  const char* peers;
  std::vector<int> peer_chunks;
};

const std::vector<Pairing>& Pairings() {
  static const auto* const pairings = new std::vector<Pairing>{
      {"gpipe", 1, "gpipe", {1}},
      {"1f1b", 1, "1f1b", {1}},
      {"interleaved_1f1b", 2, "interleaved_1f1b", {2}},
      {"looped_bfs", 2, "looped_bfs", {2}},
      {"zb_h1", 1, "zero_bubble", {1, 2}},
      {"zb_v", 2, "zero_bubble", {1, 2}},
  };
  return *pairings;
}

const std::vector<int>& Counts() {
  static const auto* const counts = new std::vector<int>{2, 4, 8, 16};
  return *counts;
}

BenchCase MlpDeep() {
  BenchCase result;
  result.name = "mlp_deep";
  result.input_shape = {512};
  result.classes = 512;
  result.batch_size = 128;
  result.optimizer = "sgd";
  result.learning_rate = 0.01;
  result.steps = 10;
  result.compared_steps = 3;
  return result;
}

// A case of bench_ddp, with SGD. The sides compare losses for every setting,
// so that few steps do.
BenchCase Existing(const std::string& name, int64_t compared_steps) {
  BenchCase result = CasesNamed({name})->front();
  result.optimizer = "sgd";
  result.learning_rate = 0.001;
  result.compared_steps = compared_steps;
  return result;
}

std::vector<PipelineCase> MakeCases() {
  std::vector<PipelineCase> cases;
  for (const BenchCase& bench :
       {MlpDeep(), Existing("gpt_tiny", 3), Existing("resnet18", 1)}) {
    for (const Pairing& pairing : Pairings()) {
      PipelineCase made;
      made.name = absl::StrCat(bench.name, "/", pairing.ours);
      made.bench = bench;
      made.schedule = pairing.ours;
      made.ours = WithWeightsTogether(SettingsOf(
          pairing.ours, {pairing.our_chunks}, Counts(), bench.batch_size));
      made.peers = SettingsOf(pairing.peers, pairing.peer_chunks, Counts(),
                              bench.batch_size);
      cases.push_back(std::move(made));
    }
  }
  return cases;
}

}  // namespace

bool PipelineSetting::operator==(const PipelineSetting& other) const {
  return schedule == other.schedule && chunks == other.chunks &&
         microbatches == other.microbatches && cut == other.cut &&
         together == other.together && reproducible == other.reproducible &&
         recipe == other.recipe;
}

std::string ToString(const PipelineSetting& setting) {
  std::string text = absl::StrCat(setting.schedule, " ", setting.chunks, " ",
                                  setting.microbatches, " ", setting.cut);
  if (setting.together != 1) absl::StrAppend(&text, " ", setting.together);
  if (setting.reproducible) absl::StrAppend(&text, " ", kReproducible);
  if (!setting.recipe.empty()) absl::StrAppend(&text, " ", setting.recipe);
  return text;
}

absl::StatusOr<PipelineSetting> ParsePipelineSetting(const std::string& text) {
  std::istringstream words(text);
  PipelineSetting setting;
  words >> setting.schedule >> setting.chunks >> setting.microbatches >>
      setting.cut;
  bool good = !words.fail() && setting.chunks > 0 && setting.microbatches > 0 &&
              (setting.cut == "uniform" || setting.cut == "time");
  for (std::string word; good && words >> word;) {
    if (word == kReproducible) {
      setting.reproducible = true;
    } else {
      good = absl::SimpleAtoi(word, &setting.together) && setting.together > 0;
    }
  }
  if (good) return setting;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text,
                   "': expected SCHEDULE CHUNKS MICROBATCHES uniform|time "
                   "[TOGETHER] [reproducible]"));
}

std::vector<PipelineSetting> SettingsOf(const std::string& schedule,
                                        const std::vector<int>& chunks,
                                        const std::vector<int>& counts,
                                        int64_t samples) {
  std::vector<PipelineSetting> settings;
  for (int chunk : chunks) {
    for (int microbatches : counts) {
      if (microbatches > samples) continue;
      for (const char* cut : {"uniform", "time"}) {
        settings.push_back({schedule, chunk, microbatches, cut});
      }
    }
  }
  return settings;
}

std::vector<PipelineSetting> WithWeightsTogether(
    std::vector<PipelineSetting> settings) {
  for (size_t i = 0, count = settings.size(); i < count; ++i) {
    if (settings[i].microbatches == 1) continue;
    settings.push_back(settings[i]);
    settings.back().together = settings[i].microbatches;
  }
  return settings;
}

std::vector<std::string> DoubtfulPeerSchedules() {
  return {"zbv", "dual_pipe_v"};
}

std::vector<PipelineSetting> DoubtfulSettings(const std::string& schedule,
                                              const BenchCase& bench) {
  std::vector<PipelineSetting> settings =
      SettingsOf(schedule, {2}, Counts(), bench.batch_size);
  // DualPipeV takes two microbatches a stage at the least.
  settings.erase(std::remove_if(settings.begin(), settings.end(),
                                [](const PipelineSetting& each) {
                                  return each.microbatches < 4;
                                }),
                 settings.end());
  return settings;
}

const std::vector<PipelineCase>& PipelineCases() {
  static const auto* const cases = new std::vector<PipelineCase>(MakeCases());
  return *cases;
}

absl::StatusOr<std::vector<PipelineCase>> PipelineCasesNamed(
    const std::vector<std::string>& names) {
  return CasesAmong(PipelineCases(), names);
}

}  // namespace tandem
