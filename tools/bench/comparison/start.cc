#include "tools/bench/pipeline_sides.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/environment.h"
#include "core/base/status_macros.h"
#include "core/process/process_end.h"
#include "core/process/subprocess.h"
#include "tools/bench/runfile.h"
#include "tools/bench/side.h"

namespace tandem {
namespace {

constexpr char kProgram[] = "tools/bench/pipeline_rank";
constexpr char kScript[] = "tools/bench/peers/pipeline_peer.py";

Environment SideEnvironment(const PipelineBenchOptions& options) {
  Environment environment = Environment::OfProcess();
  environment.Set("OMP_NUM_THREADS", absl::StrCat(options.threads));
  environment.Set("GLOO_SOCKET_IFNAME", "lo");
  environment.Set("PYTHONDONTWRITEBYTECODE", "1");
  return environment;
}

// Where all sides read weights and batches.
std::string InputsPath(const PipelineBenchOptions& options) {
  return options.folder + "/inputs.safetensors";
}

absl::StatusOr<std::unique_ptr<Side>> StartSide(
    const std::string& name, const BenchCase& bench,
    const PipelineBenchOptions& options) {
  const bool ours = absl::StartsWith(name, kOurs);
  const BenchLayout layout = ours              ? options.layout
                             : name == kSingle ? BenchLayout()
                                               : options.layout.OverRanks();
  SideOptions side;
  side.name = name;
  side.ranks = layout.ranks();
  side.folder = options.folder;
  side.environment = SideEnvironment(options);
  if (ours) {
    TANDEM_ASSIGN_OR_RETURN(const std::string program, Runfile(kProgram));
    side.command = {program, absl::StrCat("--devices=", layout.devices)};
  } else {
    TANDEM_ASSIGN_OR_RETURN(const std::string python, options.python);
    TANDEM_ASSIGN_OR_RETURN(const std::string script, Runfile(kScript));
    side.command = {"/usr/bin/env", python, script};
  }
  side.command.push_back(absl::StrCat("--pipe=", layout.pipe));
  side.command.push_back(absl::StrCat("--learning_rate=", bench.learning_rate));
  side.command.push_back("--model=" + bench.name);
  side.command.push_back("--inputs=" + InputsPath(options));
  side.command.push_back(absl::StrCat("--threads=", options.threads));
  return Side::Start(side);
}

}  // namespace

absl::Status WriteInputs(const std::string& model,
                         const PipelineBenchOptions& options) {
  SubprocessOptions process;
  TANDEM_ASSIGN_OR_RETURN(process.program, Runfile(kProgram));
  process.argv = {process.program, "--write_inputs", "--model=" + model,
                  "--inputs=" + InputsPath(options)};
  process.environment = SideEnvironment(options).ToStrings();
  TANDEM_ASSIGN_OR_RETURN(Subprocess writer, Subprocess::Start(process));
  const auto end = writer.Wait(std::chrono::minutes(2));
  if (end == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "writing weights and batches: ",
      end.has_value() ? DescribeEnd(*end) : "takes longer than it may"));
}

PipelineContender StartContender(const std::string& name,
                                 const BenchCase& bench,
                                 const PipelineBenchOptions& options) {
  absl::FPrintF(stderr, "%s: starting %s\n", bench.name, name);
  absl::StatusOr<std::unique_ptr<Side>> side = StartSide(name, bench, options);
  if (!side.ok()) return PipelineContender(name, side.status());
  return PipelineContender(name, *std::move(side), options.layout.replicas);
}

}  // namespace tandem
