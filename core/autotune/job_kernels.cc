#include "core/autotune/job_kernels.h"

#include <glog/logging.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/agreement/agreement.h"
#include "core/autotune/choice_file.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/base/text_fields.h"
#include "core/base/torch_status.h"

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
  if (!file.ok()) mine = file.status();
  if (file.ok() && world.rank() == 0) mine = (*file)->Read();
  std::string told;
  AppendField(EncodeStatus(mine.status()), &told);
  AppendField(mine.ok() ? FormatChoices(*mine) : "", &told);
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world.AllGatherString(told, [] { return "which kernels are rank 0's"; }));
  absl::string_view of_rank_0 = all[0];
  const absl::Status kept =
      Verdict({std::string(TakeField(&of_rank_0).value_or(""))});
  if (!kept.ok()) return world.size() == 1 ? kept : Annotate(kept, "rank 0");
  if (!file.ok()) {
    LOG(WARNING) << "this rank keeps no kernels that it measures, and takes "
                    "those of other ranks or a fixed rule: "
                 << file.status();
  }
  KernelChoices::Measuring measuring;
  if (file.ok()) measuring.file = *std::move(file);
  measuring.given = ParseChoices(TakeField(&of_rank_0).value_or(""));
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
