#include "core/instrument/fault_point.h"

#include <glog/logging.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace fault_internal {
std::atomic<bool> armed{false};
}  // namespace fault_internal

namespace {

constexpr char kVariable[] = "TANDEM_FAULT";
constexpr char kExample[] = "point=bucket:1,rank=2,step=3,action=kill";
constexpr double kLongestDelay = 86400;

// Written before `armed` is set.
std::vector<Fault>& Armed() {
  static auto* const faults = new std::vector<Fault>;
  return *faults;
}

std::atomic<int> context_rank{0};
std::atomic<int64_t> context_step{0};

absl::Status Wrong(absl::string_view part, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", part, "': expected ", expected, ", as in '", kExample, "'"));
}

absl::Status ParseAction(absl::string_view text, Fault* fault) {
  using Action = Fault::Action;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const auto& [name, argument] = parts;
  if (text == "kill" || text == "stop" || text == "fail") {
    fault->action = text == "kill"   ? Action::kKill
                    : text == "stop" ? Action::kStop
                                     : Action::kFail;
    return absl::OkStatus();
  }
  if (name == "exit") {
    fault->action = Action::kExit;
    if (absl::SimpleAtoi(argument, &fault->exit_code) &&
        fault->exit_code >= 0 && fault->exit_code <= 255) {
      return absl::OkStatus();
    }
    return Wrong(text, "exit:CODE with a code from 0 to 255");
  }
  if (name == "delay") {
    fault->action = Action::kDelay;
    if (absl::SimpleAtod(argument, &fault->delay_seconds) &&
        fault->delay_seconds >= 0 && fault->delay_seconds <= kLongestDelay) {
      return absl::OkStatus();
    }
    return Wrong(text, "delay:SECONDS with 0 to 86400 seconds");
  }
  return Wrong(text, "the action kill, stop, exit:CODE, fail or delay:SECONDS");
}

template <typename T>
absl::Status ParseCount(absl::string_view part, absl::string_view text,
                        std::optional<T>* count) {
  T value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) {
    return Wrong(part, "an integer, 0 or more");
  }
  *count = value;
  return absl::OkStatus();
}

absl::Status ParsePart(absl::string_view part, Fault* fault, bool* has_action) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(part, absl::MaxSplits('=', 1));
  const auto& [key, value] = parts;
  if (key == "point" && !value.empty()) {
    fault->point = std::string(value);
    return absl::OkStatus();
  }
  if (key == "rank") return ParseCount(part, value, &fault->rank);
  if (key == "step") return ParseCount(part, value, &fault->step);
  if (key == "action") {
    *has_action = true;
    return ParseAction(value, fault);
  }
  return Wrong(part, "point=, rank=, step= or action= and a value");
}

absl::StatusOr<Fault> ParseFault(absl::string_view text) {
  Fault fault;
  bool has_action = false;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    TANDEM_RETURN_IF_ERROR(
        ParsePart(absl::StripAsciiWhitespace(part), &fault, &has_action));
  }
  if (fault.point.empty() || !has_action) {
    return Wrong(text, "both point= and action=");
  }
  return fault;
}

bool IsHere(const Fault& fault, absl::string_view point) {
  return fault.point == point &&
         fault.rank.value_or(context_rank.load()) == context_rank.load() &&
         fault.step.value_or(context_step.load()) == context_step.load();
}

absl::Status Act(const Fault& fault, const std::string& where) {
  switch (fault.action) {
    case Fault::Action::kKill:
      kill(getpid(), SIGKILL);
      pause();  // until the signal is delivered
      break;
    case Fault::Action::kStop:
      // To this thread, so that it goes no further: one to the process may be
      // taken by another thread, while this one works on.
      raise(SIGSTOP);
      break;
    case Fault::Action::kExit:
      _exit(fault.exit_code);
    case Fault::Action::kDelay:
      std::this_thread::sleep_for(
          std::chrono::duration<double>(fault.delay_seconds));
      break;
    case Fault::Action::kFail:
      return absl::InternalError(
          absl::StrCat("a fault was asked for at ", where));
    case Fault::Action::kCall:
      return fault.call();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Fault>> ParseFaults(absl::string_view text) {
  std::vector<Fault> faults;
  if (absl::StripAsciiWhitespace(text).empty()) return faults;
  for (absl::string_view one : absl::StrSplit(text, ';')) {
    TANDEM_ASSIGN_OR_RETURN(Fault fault, ParseFault(one));
    faults.push_back(std::move(fault));
  }
  return faults;
}

void ArmFaults(std::vector<Fault> faults) {
  const bool any = !faults.empty();
  Armed() = std::move(faults);
  fault_internal::armed.store(any, std::memory_order_release);
}

absl::Status ArmFaultsFromEnvironment() {
  const char* text = std::getenv(kVariable);
  auto faults = ParseFaults(text == nullptr ? "" : text);
  if (!faults.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the environment says ",
                                                   kVariable, "='", text, "'; ",
                                                   faults.status().message()));
  }
  ArmFaults(*std::move(faults));
  return absl::OkStatus();
}

void SetFaultContext(int rank, int64_t step) {
  context_rank.store(rank, std::memory_order_relaxed);
  context_step.store(step, std::memory_order_relaxed);
}

absl::Status fault_internal::Pass(absl::string_view point, int64_t index) {
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::string name =
      index < 0 ? std::string(point) : absl::StrCat(point, ":", index);
  for (const Fault& fault : Armed()) {
    if (!IsHere(fault, name)) continue;
    const std::string where =
        absl::StrCat(name, " of step ", context_step.load(), " on rank ",
                     context_rank.load());
    if (fault.action != Fault::Action::kCall) {
      LOG(WARNING) << kVariable << " acts at " << where;
    }
    TANDEM_RETURN_IF_ERROR(Act(fault, where));
  }
  return absl::OkStatus();
}

}  // namespace tandem
