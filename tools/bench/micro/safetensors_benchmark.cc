// How long a file of tensors takes to write and to read, by the number of
// tensors and by their size.
//
//   bazel run //tools/bench:safetensors_benchmark
//
// Many tensors: of 16 numbers each, as many as a model of 1,000, 10,000 or
// 100,000 parameters has with Adam's state (three times as many). Few: 4 of
// 64 MiB. Files lie in $TMPDIR, or in /tmp.

#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>
#include <benchmark/benchmark.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/tensors.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/safetensors_header.h"

namespace tandem {
namespace {

std::string Path() {
  const char* folder = std::getenv("TMPDIR");
  return absl::StrCat(folder == nullptr ? "/tmp" : folder,
                      "/safetensors_benchmark.", getpid());
}

NamedTensors Tensors(int64_t count, int64_t numbers) {
  const at::Tensor values = at::rand({numbers});
  NamedTensors tensors;
  for (int64_t i = 0; i < count; ++i) {
    tensors.emplace_back(absl::StrCat("layers.", i, ".weight"), values);
  }
  return tensors;
}

void FormatHeader(benchmark::State& state) {
  SafetensorsHeader header;
  for (int64_t i = 0; i < state.range(0); ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * 64;
    header.entries.push_back({absl::StrCat("layers.", i, ".weight"),
                              c10::ScalarType::Float,
                              {16},
                              at,
                              at + 64});
  }
  for (auto iteration : state) {
    benchmark::DoNotOptimize(FormatSafetensorsHeader(header));
  }
}

void Write(benchmark::State& state) {
  const NamedTensors tensors = Tensors(state.range(0), state.range(1));
  for (auto iteration : state) CHECK(WriteSafetensors(Path(), tensors).ok());
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1) *
                          4);
  unlink(Path().c_str());
}

void Read(benchmark::State& state) {
  CHECK(WriteSafetensors(Path(), Tensors(state.range(0), state.range(1))).ok());
  for (auto iteration : state) {
    auto reader = SafetensorsReader::Open(Path());
    CHECK(reader.ok() && (*reader)->ReadAll().ok());
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1) *
                          4);
  unlink(Path().c_str());
}

constexpr int64_t kFew = 4, kLarge = int64_t{16} << 20;

BENCHMARK(FormatHeader)
    ->Arg(3000)
    ->Arg(30000)
    ->Arg(300000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(Write)
    ->Args({3000, 16})
    ->Args({30000, 16})
    ->Args({300000, 16})
    ->Args({kFew, kLarge})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(Read)
    ->Args({300000, 16})
    ->Args({kFew, kLarge})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  at::set_num_threads(1);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
