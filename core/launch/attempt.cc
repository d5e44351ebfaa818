#include "core/launch/attempt.h"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/launch/launch.h"
#include "core/launch/stop_signals.h"
#include "core/process/process_end.h"
#include "core/process/signal_thread.h"

namespace tandem {

Attempt::Attempt(const LaunchPlan& plan, int port,
                 const LauncherOptions& options, SignalPipe* signals,
                 LauncherMessages* messages, const ElasticNode* node)
    : plan_(plan),
      port_(port),
      options_(options),
      signals_(signals),
      messages_(messages),
      node_(node),
      replacements_(options.max_replacements, options.restart_delay) {}

Attempt::~Attempt() {
  if (telling_.joinable()) telling_.join();
}

absl::Status Attempt::Start(const std::vector<std::string>& argv,
                            const RankOutputs& outputs) {
  argv_ = argv;
  outputs_ = outputs;
  for (int i = 0; i < plan_.launch.local_world_size; ++i) {
    TANDEM_ASSIGN_OR_RETURN(RankProcess rank,
                            StartRankProcess(plan_, i, port_, argv, outputs));
    ranks_.push_back(std::move(rank));
    ++end_.started;
  }
  return absl::OkStatus();
}

AttemptEnd Attempt::Run() {
  while (CountRunning(ranks_) > 0) {
    AwaitEvents();
    HandleSignals();
    FollowOrder();
    for (RankProcess& rank : ranks_) {
      rank.out.Pump();
      rank.err.Pump();
    }
    HandleEnds(TakeEnded(ranks_));
    StartDue();
    KillWhenOverdue();
  }
  for (RankProcess& rank : ranks_) {
    rank.out.Finish();
    rank.err.Finish();
  }
  return end_;
}

// Milliseconds until something is due; -1: until something happens.
int Attempt::PollTimeout() const {
  if (node_ != nullptr) return 100;  // for its orders
  std::optional<Clock::time_point> next = replacements_.NextDue();
  if (kill_at_) next = std::min(next.value_or(*kill_at_), *kill_at_);
  if (!next.has_value()) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      *next - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count() + 1));
}

void Attempt::AwaitEvents() {
  std::vector<pollfd> fds = {{signals_->fd(), POLLIN, 0}};
  for (const RankProcess& rank : ranks_) {
    for (const int fd : {rank.out.fd(), rank.err.fd()}) {
      if (fd >= 0) fds.push_back({fd, POLLIN, 0});
    }
  }
  poll(fds.data(), fds.size(), PollTimeout());
}

void Attempt::HandleSignals() {
  while (const std::optional<int> signal = signals_->Next()) {
    if (*signal == SIGCHLD) continue;
    if (*signal == SIGTSTP) {
      Suspend();
    } else if (!StopsRanks(*signal)) {
      SignalRunning(ranks_, *signal);
    } else {
      Stop(*signal);
    }
  }
}

// Each kind is passed on once; again, and no echo, it kills.
void Attempt::Stop(int signal) {
  const auto [first, is_new] = stopped_at_.emplace(signal, Clock::now());
  if (is_new) {
    messages_->Say(
        absl::StrCat(SignalName(signal), " passed on to the ranks",
                     KillsRanks(signal) ? "; a second one kills them" : ""));
    SignalRunning(ranks_, signal);
    NoteStop(signal);
  } else if (KillsRanks(signal) &&
             Clock::now() - first->second >= kSignalEcho) {
    kill_at_ = Clock::now();
  }
}

// A rank that was sent a signal itself has ended by it: the others of its job
// stop after the same step.
void Attempt::FollowStop(const RankProcess& rank, int signal) {
  messages_->StoppedByItself(rank, signal);
  stopped_at_.emplace(signal, Clock::now());
  NoteStop(signal);
}

void Attempt::NoteStop(int signal) {
  if (end_.stop_signal == 0) {
    end_.stop_signal = signal;
    end_.died_first = stopping_;
  }
  if (!KillsRanks(signal)) return;
  // Ranks that are being stopped because one died get no more time.
  const Clock::time_point at = Clock::now() + options_.stop_grace;
  kill_at_ = std::min(kill_at_.value_or(at), at);
}

// Ctrl-Z: the ranks, in groups of their own, do not get it from the terminal.
void Attempt::Suspend() {
  SignalRunning(ranks_, SIGTSTP);
  raise(SIGSTOP);  // until the shell's fg or bg
  SignalRunning(ranks_, SIGCONT);
}

void Attempt::StopAll() {
  stopping_ = true;
  kill_at_ = Clock::now() + options_.death_grace;
  StopRunning(ranks_);
}

// What the job's nodes want of this one's ranks.
void Attempt::FollowOrder() {
  if (node_ == nullptr || Stops()) return;
  const NodeGroup group = node_->Group();
  if (group.order == NodeGroup::Order::kStopAtStep && !end_.makes_room) {
    MakeRoom(group.why);
  } else if (group.order == NodeGroup::Order::kStop) {
    end_.cause = group.why;
    messages_->Say(absl::StrCat(group.why, ": stopping this node's ranks"));
    StopAll();
  }
}

void Attempt::MakeRoom(const std::string& why) {
  end_.makes_room = true;
  end_.cause = why;
  messages_->Say(absl::StrCat(why, ": this node's ranks stop after a step"));
  SignalRunning(ranks_, SIGUSR1);
  kill_at_ = Clock::now() + options_.room_grace;
}

void Attempt::KillWhenOverdue() {
  if (!kill_at_.has_value() || Clock::now() < *kill_at_) return;
  for (RankProcess& rank : ranks_) {
    if (rank.end.has_value()) continue;
    messages_->IsKilled(rank);
    rank.process.Signal(SIGKILL);
  }
  kill_at_.reset();
}

}  // namespace tandem
