#include "core/run/secret_setup.h"

#include <cstdlib>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/environment.h"
#include "core/base/owned_fd.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "core/launch/launch.h"
#include "core/store/guard/job_secret.h"

namespace tandem {
namespace {

constexpr char kVariable[] = "TANDEM_JOB_SECRET_FILE";

struct Given {
  std::string path;  // empty: none
  std::string source;
};

absl::StatusOr<Given> PathGiven(const std::string& flag) {
  const std::string variable =
      Environment::OfProcess().Get(kVariable).value_or("");
  const Given by_flag = {flag, absl::StrCat("--job_secret_file=", flag)};
  const Given by_variable = {variable, absl::StrCat(kVariable, "=", variable)};
  if (!flag.empty() && !variable.empty() && flag != variable) {
    return absl::InvalidArgumentError(
        absl::StrCat(by_flag.source, " and ", by_variable.source,
                     " contradict each other: leave one of them out"));
  }
  return flag.empty() ? by_variable : by_flag;
}

absl::Status CheckRendezvous(const Launch& launch, const std::string& source) {
  const Rendezvous& where = launch.rendezvous;
  if (where.kind == Rendezvous::Kind::kFile) {
    return absl::InvalidArgumentError(absl::StrCat(
        source, " is for a store at a port, but these ranks meet in ",
        where.path, ", which its folder's permissions guard: leave it out"));
  }
  if (where.served_by_launcher && launch.launcher == "torchrun") {
    return absl::InvalidArgumentError(absl::StrCat(
        source, " is for a store of tandem's, but torchrun serves this one, ",
        "and asks for no secret: leave it out, or start with ",
        "--nproc_per_node"));
  }
  return absl::OkStatus();
}

bool StartsAllRanks(const LaunchPlan& plan) {
  return plan.is_launcher && plan.launch.nnodes == 1 &&
         plan.launch.rendezvous.kind == Rendezvous::Kind::kTcp;
}

// The path of a new secret, which is there until this process ends.
absl::StatusOr<std::string> MakeSecret() {
  TANDEM_ASSIGN_OR_RETURN(OwnedFd file, NewSecretFile());
  const std::string path = PathOfDescriptor(file.Release());
  setenv(kVariable, path.c_str(), /*overwrite=*/1);
  return path;
}

}  // namespace

absl::Status UseJobSecret(const LaunchPlan& plan, const std::string& file) {
  if (!JobSecret().empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(Given given, PathGiven(file));
  if (given.path.empty() && !StartsAllRanks(plan)) return absl::OkStatus();
  if (given.path.empty()) {
    TANDEM_ASSIGN_OR_RETURN(given.path, MakeSecret());
  } else {
    TANDEM_RETURN_IF_ERROR(CheckRendezvous(plan.launch, given.source));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string secret,
                          ReadSecretFile(UserPath(given.path)));
  SetJobSecret(secret);
  return absl::OkStatus();
}

}  // namespace tandem
