#include "tests/e2e/kills/damage_trial.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/program.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Damage = DamageTrial::Damage;

constexpr char kNewest[] = "step-000000004";
constexpr char kBefore[] = "step-000000002";

const std::vector<std::string>& Files() {
  static const auto* const files = new std::vector<std::string>{
      "manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"};
  return *files;
}

const std::vector<std::string>& Names() {
  static const auto* const names = new std::vector<std::string>{
      "a flipped bit", "cut off", "a byte more", "zeros to its end", "missing"};
  return *names;
}

struct JobEnd {
  ProgramResult result;
  std::string weights_sha256;  // empty: it has failed
};

JobEnd RunJob(const Flags& more) {
  const std::string folder = NewFolder("damages");
  const std::string metrics = folder + "/metrics.jsonl";
  const Flags job =
      SmallJob({"--nproc_per_node=2", "--pipe=2", "--microbatches=2",
                "--optimizer=adam", "--metrics_file=" + metrics});
  JobEnd end;
  end.result = RunProgram(kTrain, Joined(job, more));
  if (end.result.exit_code == 0) {
    end.weights_sha256 = Fingerprint(ReadEvents(metrics));
  }
  fs::remove_all(folder);
  return end;
}

std::string Damaged(std::string bytes, const DamageTrial& trial) {
  const std::string whole = bytes;
  const auto at =
      static_cast<size_t>(trial.place * static_cast<double>(whole.size()));
  switch (trial.damage) {
    case Damage::kBit:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << trial.bit));
      break;
    case Damage::kCut:
      bytes.resize(at);
      break;
    case Damage::kLonger:
      bytes.insert(at, 1, 'x');
      break;
    default:
      std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(),
                '\0');
  }
  if (bytes == whole) bytes.pop_back();  // they were zeros
  return bytes;
}

void DamageFile(const std::string& path, const DamageTrial& trial) {
  if (trial.damage == Damage::kMissing) {
    fs::remove(path);
    return;
  }
  const std::string bytes = Damaged(FileContents(path), trial);
  std::ofstream(path, std::ios::binary) << bytes;
}

// Whether a line tells of that file of the newest checkpoint.
bool IsNamed(const std::string& file, const std::string& out) {
  for (const absl::string_view line : absl::StrSplit(out, '\n')) {
    if (absl::StrContains(line, kNewest) && absl::StrContains(line, file)) {
      return true;
    }
  }
  return false;
}

}  // namespace

int DamageCells() { return static_cast<int>(Names().size() * Files().size()); }

std::vector<DamageTrial> MakeDamageTrials(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<DamageTrial> trials;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    DamageTrial trial;
    trial.damage = static_cast<Damage>(i % Names().size());
    trial.file = Files()[i / Names().size() % Files().size()];
    trial.place = static_cast<double>(random() % 1000000) / 1000000;
    trial.bit = static_cast<int>(random() % 8);
    trials.push_back(trial);
  }
  return trials;
}

std::string KindOf(const DamageTrial& trial) {
  return absl::StrCat(trial.file, ", ",
                      Names()[static_cast<size_t>(trial.damage)]);
}

std::string Describe(const DamageTrial& trial) {
  return absl::StrFormat("%s, at %.6f of it", KindOf(trial), trial.place);
}

DamagedJob::DamagedJob()
    : folder_(NewFolder("damaged")),
      weights_sha256_(RunJob({}).weights_sha256) {
  RunJob({"--max_steps=4", "--save_every=2", "--save_dir=" + folder_});
}

std::string DamagedJob::Run(const DamageTrial& trial) const {
  if (weights_sha256_.empty() ||
      NamesIn(folder_) != std::vector<std::string>{kBefore, kNewest}) {
    return "the job to go on from has failed";
  }
  const std::string folder = NewFolder("damaged");
  fs::copy(folder_, folder, fs::copy_options::recursive);
  DamageFile(absl::StrCat(folder, "/", kNewest, "/", trial.file), trial);
  const JobEnd end = RunJob({"--resume=auto", "--save_dir=" + folder});
  fs::remove_all(folder);
  const std::string& out = end.result.out;
  if (end.weights_sha256.empty()) {
    return absl::StrCat("exit code ", end.result.exit_code, ": ",
                        end.result.err);
  }
  if (!IsNamed(trial.file, out)) return "the file is not named: " + out;
  if (!absl::StrContains(out, absl::StrCat("resumed ", folder, "/", kBefore))) {
    return "it did not go on from the checkpoint before: " + out;
  }
  return end.weights_sha256 == weights_sha256_ ? ""
                                               : "it ended with other bits";
}

}  // namespace tandem
