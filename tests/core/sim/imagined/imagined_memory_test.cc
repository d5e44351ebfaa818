// Training on imagined devices beside training on simulated ones, which
// compute: the books must be the same, by category, now and at the peak.

#include "core/sim/imagined/imagined_memory.h"

#include <ATen/Functions.h>
#include <glog/logging.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/device/memory_category.h"
#include "core/meta/shapes.h"
#include "core/model/layer_list.h"
#include "core/sim/imagined/meters.h"
#include "core/sim/memory/memory.h"
#include "core/sim/sim.h"
#include "models/classification_loss.h"
#include "models/registry.h"

namespace tandem {
namespace {

struct Problem {
  const char* model;
  std::vector<int64_t> shape;  // of a sample
  int64_t classes;
  bool tokens;
};

std::vector<Problem> Problems() {
  return {{"mlp_small", {1, 28, 28}, 10, false},
          {"cnn", {1, 28, 28}, 10, false},
          {"resnet18", {3, 32, 32}, 10, false},
          {"gpt_tiny", {32}, 256, true},
          {"llama_tiny", {32}, 256, true}};
}

// The host's stand-in, on which layers are made; no problem trains there.
constexpr int kHostPlace = 15;

LayerSpecs SpecsFromLayers(const Problem& problem) {
  ModelOptions model;
  model.name = problem.model;
  model.input_shape = problem.shape;
  model.classes = problem.classes;
  model.tokens = problem.tokens;
  return MakeModel(model).value();
}

at::Tensor Inputs(const Problem& problem, int64_t samples) {
  std::vector<int64_t> sizes = problem.shape;
  sizes.insert(sizes.begin(), samples);
  return at::zeros(sizes, problem.tokens ? at::kLong : at::kFloat);
}

at::Tensor Targets(const Problem& problem, int64_t samples) {
  std::vector<int64_t> sizes = {samples};
  if (problem.tokens) sizes.push_back(problem.shape[0]);
  return at::zeros(sizes, at::kLong);
}

// A step of plain SGD with momentum, by LibTorch's operators.
void Update(const NamedTensors& parameters, std::vector<at::Tensor>* momenta) {
  const at::NoGradGuard no_grad;
  const MemoryCategoryScope scope(MemoryCategory::kOptimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor value = parameters[i].second;
    if (momenta->size() <= i) momenta->push_back(at::zeros_like(value));
    if (!value.grad().defined()) continue;
    (*momenta)[i].mul_(0.9).add_(value.grad());
    value.add_((*momenta)[i], -0.01);
    value.mutable_grad() = at::Tensor();
  }
}

void Train(const LayerList& layers, const at::Tensor& inputs,
           const at::Tensor& targets, c10::Device device) {
  std::vector<at::Tensor> momenta;
  for (int step = 0; step < 2; ++step) {
    at::Tensor loss;
    {
      const MemoryCategoryScope scope(MemoryCategory::kActivations);
      const at::Tensor outputs = Forward(layers, inputs.to(device));
      loss = CrossEntropy(outputs, targets.to(device)).loss;
    }
    loss.backward();
    EXPECT_GE(loss.item<float>(), 0);
    Update(NamedParameters(layers), &momenta);
  }
}

std::string Text(const MemoryUse& use) {
  std::string text = absl::StrCat(use.total);
  for (const int64_t bytes : use.by_category)
    absl::StrAppend(&text, " ", bytes);
  return text;
}

// "peak: total and categories, now: the same", of the problem with this many
// samples, and the device's number.
std::string BooksAfter(const Problem& problem, int64_t samples, int device,
                       bool imagined) {
  LayerList layers;
  if (imagined) {
    const MetaScope no_values(SimDevice(kHostPlace));
    layers = MakeModelLayers(SpecsFromLayers(problem), /*seed=*/1).value();
  } else {
    layers = MakeModelLayers(SpecsFromLayers(problem), /*seed=*/1).value();
  }
  const absl::Status moved = MoveLayers(layers, SimDevice(device));
  CHECK(moved.ok()) << moved;
  sim::ResetPeak(device);
  Train(layers, Inputs(problem, samples), Targets(problem, samples),
        SimDevice(device));
  const MemoryStatistics books = sim::DeviceMemoryStatistics(device);
  return absl::StrCat(Text(books.peak), " / ", Text(books.now));
}

constexpr int64_t kSamples[] = {2, 3, 8};

std::vector<std::string> AllBooks(bool imagined) {
  SimOptions options;
  options.imagined = imagined;
  const absl::Status enabled = EnableSim(options);
  CHECK(enabled.ok()) << enabled;
  std::vector<std::string> books;
  for (const Problem& problem : Problems()) {
    for (const int64_t samples : kSamples) {
      books.push_back(BooksAfter(problem, samples, 0, imagined));
    }
  }
  return books;
}

// What devices that compute come to, in a process of their own: there is one
// kind of them in each.
std::vector<std::string> SimulatedBooks() {
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    // Nothing that is thrown may run the other tests here.
    const auto write_books = [&]() noexcept {
      for (const std::string& each : AllBooks(/*imagined=*/false)) {
        const std::string line = each + "\n";
        CHECK_EQ(write(ends[1], line.data(), line.size()),
                 static_cast<ssize_t>(line.size()));
      }
    };
    write_books();
    _exit(0);
  }
  close(ends[1]);
  std::string all;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0) << "the process with devices that compute failed";
  return absl::StrSplit(all, '\n', absl::SkipEmpty());
}

TEST(ImaginedMemoryTest, IsThatOfDevicesThatCompute) {
  const std::vector<std::string> simulated = SimulatedBooks();
  const std::vector<std::string> imagined = AllBooks(/*imagined=*/true);
  ASSERT_EQ(simulated.size(), imagined.size());
  size_t cell = 0;
  for (const Problem& problem : Problems()) {
    for (const int64_t samples : kSamples) {
      std::printf("%-10s %lld samples: %s\n", problem.model,
                  static_cast<long long>(samples), imagined[cell].c_str());
      EXPECT_EQ(simulated[cell], imagined[cell]) << problem.model;
      ++cell;
    }
  }
  std::printf("%zu cells\n", cell);
  EXPECT_EQ(cell, 15u);
}

// The most that this process has held, in bytes.
int64_t MostHeld() {
  rusage usage{};
  CHECK_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  return int64_t{1024} * usage.ru_maxrss;
}

// A layer of each kind, on 2048 tokens: its parameters alone are 0.9 billion
// numbers, of which the process may hold none.
TEST(ImaginedMemoryTest, LayersOfLlama70bTakeNone) {
  const auto sizes = ModelTokenLimits("llama-3-70b");
  const Problem problem = {"llama-3-70b", {2048}, sizes.vocabulary, true};
  const LayerSpecs all = SpecsFromLayers(problem);
  LayerList layers;
  {
    const MetaScope no_values(SimDevice(kHostPlace));
    layers = MakeModelLayers({all[0], all[1], all[all.size() - 2], all.back()},
                             /*seed=*/1)
                 .value();
  }
  ASSERT_TRUE(MoveLayers(layers, SimDevice(1)).ok());
  int64_t parameters = 0;
  for (const auto& each : NamedParameters(layers)) {
    parameters += each.second.numel();
  }
  const int64_t before = MostHeld();
  sim::ResetWork(1);
  Train(layers, Inputs(problem, 1), Targets(problem, 1), SimDevice(1));
  const MemoryStatistics books = sim::DeviceMemoryStatistics(1);
  std::printf("%lld parameters, peak %lld bytes, process %lld more\n",
              static_cast<long long>(parameters),
              static_cast<long long>(books.peak.total),
              static_cast<long long>(MostHeld() - before));
  // Values, gradients and momenta at least.
  EXPECT_GE(books.peak.total, 12 * parameters);
  EXPECT_LT(MostHeld(), int64_t{1} << 30);
  // Two products a parameter and token, but for the embedding's: one layer's
  // weights and the head's, in two steps.
  const double embedding = 8192.0 * static_cast<double>(sizes.vocabulary);
  const double products =
      2 * 2048.0 * (static_cast<double>(parameters) - embedding);
  EXPECT_GT(sim::TotalWork(1).forward.flops, 2 * products);
  EXPECT_LT(sim::TotalWork(1).forward.flops, 2 * 1.2 * products);
}

}  // namespace
}  // namespace tandem
