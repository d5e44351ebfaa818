#include "tests/e2e/train/axes_cells.h"

#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem {
namespace {

struct Value {
  std::string name;
  std::string flags;
};

using Values = std::vector<Value>;

const Values& Levels() {
  static const auto* const all = new Values{
      {"", "--shard=off"},
      {"OfOptimizer", "--shard=optimizer"},
      {"OfGradients", "--shard=gradients"},
      {"OfParameters", "--shard=parameters"},
  };
  return *all;
}

const Values& Models() {
  static const auto* const all = new Values{
      {"Gpt", "--model=gpt_tiny"},
      {"TiedGpt", "--model=gpt_tiny_tied"},
      {"Llama", "--model=llama_tiny --ffn_width=192"},
      {"TiedLlama", "--model=llama_tiny_tied --ffn_width=192"},
  };
  return *all;
}

constexpr int kFirstLlama = 2;

constexpr int kHeads[] = {8, 6};

// Batches of 24 samples, which all numbers of replicas divide. The last one of
// an uneven epoch has 5: some of 6 or 8 replicas have none.
const Values& Batches() {
  static const auto* const all = new Values{
      {"", "--synthetic_samples=192 --max_steps=3"},
      {"Uneven", "--nodrop_last --synthetic_samples=77 --max_steps=4"},
  };
  return *all;
}

const Values& Backends() {
  static const auto* const all = new Values{
      {"shm", ""},
      {"gloo", "--backend=gloo"},
      {"sim_nccl",
       "--backend=sim_nccl --device=sim --sim_async --sim_delay_us=20"},
  };
  return *all;
}

enum Technique { kClips, kWholeTokens, kDrops, kComputesAgain };

const Values& Techniques() {
  static const auto* const all = new Values{
      {"Clips", "--clip_grad_norm=0.5 --ema_decay=0.9"},
      {"OfWholeTokens", "--loss_chunk=24"},
      {"Drops", "--dropout=0.1 --label_smoothing=0.1"},
      {"ComputesAgain", "--checkpoint_every=1 --z_loss=0.001"},
  };
  return *all;
}

const Value& At(const Values& values, int number) {
  return values[static_cast<size_t>(number)];
}

int CountOf(const Values& values) { return static_cast<int>(values.size()); }

std::string NameOf(const AxisDegrees& mesh) {
  std::string name;
  const auto add = [&](absl::string_view axis, int degree) {
    if (degree > 1) absl::StrAppend(&name, axis, degree);
  };
  add("Data", mesh.data);
  add("Shard", mesh.shard);
  add("Pipe", mesh.pipe);
  add("Tensor", mesh.tensor);
  return name;
}

// By numbers of values, the mesh's first.
AxesCell CellOf(const Combination& values) {
  AxesCell cell;
  cell.mesh = AxesMeshes()[static_cast<size_t>(values[0])];
  cell.level = values[1];
  cell.heads = values[2];
  cell.batch = values[3];
  cell.backend = values[4];
  cell.model = values[5];
  cell.technique = values[6];
  return cell;
}

// Meshes, levels, heads, batches, backends.
std::vector<int> ProductSizes() {
  return {static_cast<int>(AxesMeshes().size()), CountOf(Levels()), 2,
          CountOf(Batches()), CountOf(Backends())};
}

bool Any(const Combination& /*values*/) { return true; }

}  // namespace

std::string JobOf(const AxesCell& cell) {
  std::string flags = absl::StrCat(At(Models(), cell.model).flags,
                                   " --width=96 --heads=", kHeads[cell.heads],
                                   " --layers=", cell.mesh.pipe > 4 ? 6 : 2,
                                   " ", At(Batches(), cell.batch).flags, " ",
                                   At(Techniques(), cell.technique).flags);
  // A degree is to divide the key-value heads, or to be a multiple of them.
  if (cell.model >= kFirstLlama) {
    absl::StrAppend(&flags, " --kv_heads=", cell.mesh.tensor % 3 == 0 ? 3 : 2);
  }
  return flags;
}

std::string MeshOf(const AxesCell& cell) {
  const AxisDegrees& mesh = cell.mesh;
  std::string flags = absl::StrCat("--nproc_per_node=", mesh.ranks());
  if (mesh.replicas() > 1) {
    absl::StrAppend(&flags, " ", At(Levels(), cell.level).flags);
  }
  if (mesh.data > 1 && mesh.shard > 1) {
    absl::StrAppend(&flags, " --data_shard=", mesh.shard);
  }
  if (mesh.pipe > 1) absl::StrAppend(&flags, " --pipe=", mesh.pipe);
  if (mesh.tensor > 1) absl::StrAppend(&flags, " --tensor=", mesh.tensor);
  // No sample comes twice.
  if (cell.batch == 1 && mesh.replicas() > 1) {
    absl::StrAppend(&flags, " --uneven_inputs=join");
  }
  if (cell.technique == kWholeTokens) {
    absl::StrAppend(&flags, " --sequence_parallel=false");
    if (mesh.pipe > 1) absl::StrAppend(&flags, " --schedule=zb_h1");
  }
  return flags;
}

std::string BackendOf(const AxesCell& cell) {
  return At(Backends(), cell.backend).flags;
}

std::string NameOf(const AxesCell& cell) {
  const std::string& backend = At(Backends(), cell.backend).name;
  return absl::StrCat(NameOf(cell.mesh), At(Levels(), cell.level).name,
                      At(Models(), cell.model).name, kHeads[cell.heads],
                      At(Techniques(), cell.technique).name,
                      At(Batches(), cell.batch).name,
                      backend == "shm"    ? ""
                      : backend == "gloo" ? "OverGloo"
                                          : "OverSimNccl");
}

const std::vector<std::string>& AxesBackends() {
  static const auto* const names = [] {
    auto* const made = new std::vector<std::string>;
    for (const Value& each : Backends()) made->push_back(each.name);
    return made;
  }();
  return *names;
}

std::string BackendFlags(const std::string& backend) {
  for (const Value& each : Backends()) {
    if (each.name == backend) return each.flags;
  }
  return "";
}

const std::vector<AxisDegrees>& AxesMeshes() {
  static const auto* const meshes = [] {
    auto* const made = new std::vector<AxisDegrees>;
    for (const int ranks : {2, 4, 6, 8}) {
      for (const Combination& each : AllCombinations(
               {ranks, ranks, ranks, ranks}, [ranks](const Combination& less) {
                 return (less[0] + 1) * (less[1] + 1) * (less[2] + 1) *
                            (less[3] + 1) ==
                        ranks;
               })) {
        made->push_back({each[0] + 1, each[1] + 1, each[2] + 1, each[3] + 1});
      }
    }
    return made;
  }();
  return *meshes;
}

std::string WhyNot(const AxesCell& cell) {
  if ((cell.mesh.shard > 1) != (cell.level > 0)) {
    return "what is divided has ranks along shard, and nothing else has";
  }
  if (kHeads[cell.heads] % cell.mesh.tensor != 0) {
    return "ranks along tensor share heads evenly";
  }
  if (cell.technique == kWholeTokens && cell.mesh.tensor == 1) {
    return "without ranks along tensor all tokens are whole";
  }
  if (cell.technique == kDrops && cell.model >= kFirstLlama) {
    return "a Llama takes no dropout";
  }
  if (cell.technique == kDrops && cell.mesh.replicas() > 1) {
    return "replicas have samples in another order, and draw otherwise";
  }
  return "";
}

std::vector<AxesCell> AllAxesCells() {
  std::vector<int> sizes = ProductSizes();
  sizes.push_back(CountOf(Models()));
  sizes.push_back(CountOf(Techniques()));
  std::vector<AxesCell> cells;
  for (const Combination& each : AllCombinations(sizes, Any)) {
    cells.push_back(CellOf(each));
  }
  return cells;
}

std::vector<AxesCell> SensibleAxesCells() {
  std::vector<AxesCell> sensible;
  for (const AxesCell& each : AllAxesCells()) {
    if (WhyNot(each).empty()) sensible.push_back(each);
  }
  return sensible;
}

// In this order the cover is small.
Combination SettingsOf(const AxesCell& cell) {
  const AxisDegrees& mesh = cell.mesh;
  return {mesh.shard > 1, cell.backend,         mesh.tensor > 1, mesh.data > 1,
          cell.level,     cell.heads,           cell.technique,  mesh.pipe > 1,
          cell.batch,     mesh.ranks() / 2 - 1, cell.model};
}

std::vector<AxesCell> CoverOf(const std::vector<AxesCell>& sensible) {
  std::map<Combination, std::vector<const AxesCell*>> of_settings;
  for (const AxesCell& each : sensible) {
    of_settings[SettingsOf(each)].push_back(&each);
  }
  std::vector<Combination> all;
  for (const auto& [settings, cells] : of_settings) all.push_back(settings);
  std::vector<AxesCell> cover;
  // Where an axis may have several numbers of ranks, they take turns.
  for (const Combination& each : PairwiseCover(all)) {
    const auto& fits = of_settings[each];
    cover.push_back(*fits[cover.size() % fits.size()]);
  }
  return cover;
}

std::vector<AxesCell> AxesProduct() {
  const int models = CountOf(Models());
  const int techniques = CountOf(Techniques());
  std::vector<AxesCell> cells;
  int turn = 0;
  for (Combination each : AllCombinations(ProductSizes(), Any)) {
    each.resize(7, 0);
    if (!WhyNot(CellOf(each)).empty()) continue;
    AxesCell cell = CellOf(each);
    // A mesh has 12 cells, or 6: they have other models than the next one's.
    cell.model = (turn + turn / 12) % models;
    // kClips makes sense everywhere.
    for (int i = 0; i < techniques; ++i) {
      cell.technique = (turn / models + turn / 48 + i) % techniques;
      if (WhyNot(cell).empty()) break;
    }
    cells.push_back(cell);
    ++turn;
  }
  return cells;
}

}  // namespace tandem
