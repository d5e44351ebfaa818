#include "core/autotune/job_kernels.h"

#include <glog/logging.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/autotune/choice_file.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// A store that answers does so in a fraction of a millisecond.
constexpr std::chrono::seconds kPatience(10);

// What the first rank to ask has said. A store that is silent, or gone, costs
// no job its life: its own answer is as good.
std::string FirstAnswer(const c10::intrusive_ptr<c10d::Store>& store,
                        const std::string& key, const std::string& mine) {
  const absl::StatusOr<std::string> first = CallWithin<std::string>(
      kPatience, [store, key = absl::StrCat("kernel/", key), mine] {
        return absl::StatusOr<std::string>(
            store->compareSet(key, /*expected=*/"", mine));
      });
  if (first.ok()) return *first;
  LOG(WARNING) << "which kernel the other ranks have chosen for " << key
               << " is not known: " << first.status();
  return mine;
}

absl::StatusOr<std::unique_ptr<ChoiceFile>> OpenCache(const std::string& path) {
  if (!path.empty()) return ChoiceFile::Open(path);
  return absl::FailedPreconditionError(
      "neither XDG_CACHE_HOME nor HOME says where choices are kept");
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobKernels>> JobKernels::Measure(
    const std::string& cache, Communicator& world, KernelChoices& choices) {
  absl::StatusOr<std::unique_ptr<ChoiceFile>> file = OpenCache(cache);
  absl::StatusOr<Choices> mine = Choices();
  if (file.ok() && world.rank() == 0) mine = (*file)->Read();
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      world.AllGatherString(mine.ok() ? FormatChoices(*mine) : "",
                            [] { return "which kernels are rank 0's"; }));
  TANDEM_RETURN_IF_ERROR(file.status());
  TANDEM_RETURN_IF_ERROR(mine.status());
  KernelChoices::Measuring measuring;
  measuring.file = *std::move(file);
  measuring.given = ParseChoices(texts[0]);
  if (world.size() > 1) {
    measuring.decide = [store = world.store()](const std::string& key,
                                               const std::string& answer) {
      return FirstAnswer(store, key, answer);
    };
  }
  choices.Measure(std::move(measuring));
  return absl::WrapUnique(new JobKernels(choices));
}

JobKernels::~JobKernels() { choices_.Fix(); }

}  // namespace tandem
