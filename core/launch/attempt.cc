#include "core/launch/attempt.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/launch/launch.h"
#include "core/launch/output_relay.h"
#include "core/launch/stop_signals.h"
#include "core/process/process_end.h"
#include "core/process/signal_thread.h"

namespace tandem {
namespace {

// The signal that asked a rank to stop, which it did, by its exit code, or
// which ended it at once, as it does while a job is set up; 0: it ended
// otherwise.
int SignalHeeded(int end) {
  const int signal = ShellExitCode(end) - 128;
  return StopsRanks(signal) ? signal : 0;
}

}  // namespace

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
  constexpr int kHeldUp = 20;  // milliseconds
  std::vector<pollfd> fds = {{signals_->fd(), POLLIN, 0}};
  int timeout = PollTimeout();
  for (const RankProcess& rank : ranks_) {
    for (const OutputRelay* relay : {&rank.out, &rank.err}) {
      if (relay->IsHeldUp()) {
        timeout = timeout < 0 ? kHeldUp : std::min(timeout, kHeldUp);
      } else if (relay->fd() >= 0) {
        fds.push_back({relay->fd(), POLLIN, 0});
      }
    }
  }
  poll(fds.data(), fds.size(), timeout);
}

void Attempt::HandleSignals() {
  while (const std::optional<int> signal = signals_->Next()) {
    if (*signal == SIGCHLD) continue;
    if (*signal == SIGTSTP) {
      // Ctrl-Z: ranks in groups of their own do not get it from the terminal.
      SignalRunning(ranks_, SIGTSTP);
      raise(SIGSTOP);  // until the shell's fg or bg
      SignalRunning(ranks_, SIGCONT);
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
    messages_->Say(absl::StrCat(
        SignalName(signal), " passed on to the ranks",
        KillsRanks(signal)
            ? absl::StrCat("; sent again after ", kSignalEcho.count(),
                           " s or more, it kills them")
            : ""));
    SignalRunning(ranks_, signal);
    NoteStop(signal);
  } else if (KillsRanks(signal) &&
             Clock::now() - first->second >= kSignalEcho) {
    kill_at_ = Clock::now();
  }
}

// A rank has ended by a signal that this launcher has not sent: somebody sent
// it to a rank of the job, and ranks that agree on it stop after the same step.
// The others are sent it now. When this launcher is sent the signal
// later, that is its first one all the same.
//
// In an elastic job of several nodes another node's launcher may have sent it:
// one that leaves, or has heard before this one that ranks are to make room.
// The job goes on then; so it does where a person has sent it to a rank, for
// that looks the same from here. One that it has ended at once has agreed on
// nothing with other nodes' ranks, which lose it: that is a death.
void Attempt::FollowStop(const RankProcess& rank, int signal) {
  const bool at_once = WIFSIGNALED(*rank.end);
  if (node_ != nullptr && plan_.launch.nnodes > 1) {
    if (at_once) return;
    const std::string why =
        absl::StrCat("rank ", rank.rank, " was stopped by ", SignalName(signal),
                     ", with those of other nodes");
    messages_->Say(why);
    StopTogether(signal, why);
    return;
  }
  messages_->StoppedByItself(rank, signal);
  SignalRunning(ranks_, signal);
  KillAfter(GraceAfter(signal));
  NoteStop(signal);
  if (at_once) NotifyNodes(rank);
}

void Attempt::StopTogether(int signal, const std::string& why) {
  agreed_ = signal;
  end_.makes_room = signal == SIGUSR1;
  end_.cause = why;
  SignalRunning(ranks_, signal);
  KillAfter(GraceAfter(signal));
}

// The time that ranks have, where no scheduler has set an end.
std::chrono::milliseconds Attempt::GraceAfter(int signal) const {
  return KillsRanks(signal) ? options_.stop_grace : options_.room_grace;
}

// Ranks that are being stopped for something else get no more time.
void Attempt::KillAfter(std::chrono::milliseconds grace) {
  const Clock::time_point at = Clock::now() + grace;
  kill_at_ = std::min(kill_at_.value_or(at), at);
}

void Attempt::NoteStop(int signal) {
  if (end_.stop_signal == 0) {
    end_.stop_signal = signal;
    end_.died_first = stopping_;
  }
  if (KillsRanks(signal)) KillAfter(options_.stop_grace);
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
  if (group.order == NodeGroup::Order::kStopAtStep && agreed_ == 0) {
    messages_->Say(
        absl::StrCat(group.why, ": this node's ranks stop after a step"));
    StopTogether(SIGUSR1, group.why);
  } else if (group.order == NodeGroup::Order::kStop) {
    end_.cause = group.why;
    messages_->Say(absl::StrCat(group.why, ": stopping this node's ranks"));
    StopAll();
  }
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

// Where nodes are several, another one may have ranks of that kind.
bool Attempt::ToleratesLoss(const RankProcess& dead) const {
  const auto& can_be_lost = options_.can_be_lost;
  if (Stops() || agreed_ != 0 || can_be_lost == nullptr ||
      !can_be_lost(dead.rank)) {
    return false;
  }
  const auto is_left = [&](const RankProcess& each) {
    return can_be_lost(each.rank) && each.end.value_or(0) == 0;
  };
  return plan_.launch.nnodes > 1 ||
         std::any_of(ranks_.begin(), ranks_.end(), is_left);
}

// Unless the job is at its end, or the rank would refuse again what it was
// given.
bool Attempt::Replaces(RankProcess& dead) {
  if (Stops() || replacements_.most() == 0) return false;
  if (ShellExitCode(*dead.end) == options_.refusal_code) return false;
  const std::string cause = messages_->DeathCause(dead);
  const auto launch = LaunchOfRank(plan_, dead.local_rank, port_);
  if (!launch.ok()) return false;
  if (!replacements_.Allows()) {
    replacements_.NoteLast(cause);
    messages_->History(absl::StrCat("no further rank is replaced after ",
                                    replacements_.done(), "; what ended each:"),
                       replacements_.history());
    return false;
  }
  const int life = replacements_.RankLife(dead.local_rank);
  if (!options_.lose(*launch, life, DescribeEnd(*dead.end))) return false;
  messages_->Lost(dead);
  const auto delay =
      replacements_.NoteDeath(dead.local_rank, Clock::now(), cause);
  messages_->Say(absl::StrCat("rank ", dead.rank, " is started again in ",
                              delay.count() / 1000.0, " s (replacement ",
                              replacements_.done(), " of ",
                              replacements_.most(), ")"));
  return true;
}

void Attempt::StartDue() {
  while (const std::optional<int> due = replacements_.TakeDue(Clock::now())) {
    const auto index = static_cast<size_t>(*due);
    const bool is_over = std::any_of(
        ranks_.begin(), ranks_.end(),
        [](const RankProcess& each) { return each.end.value_or(1) == 0; });
    if (Stops() || is_over) continue;
    auto started = StartRankProcess(plan_, *due, port_, argv_, *outputs_,
                                    replacements_.RankLife(*due));
    if (started.ok()) {
      ranks_[index] = *std::move(started);
    } else {
      messages_->Say(absl::StrCat("cannot start rank ", ranks_[index].rank,
                                  " again, the other ranks go on without it: ",
                                  started.status().message()));
    }
  }
}

// One that a signal has killed may be why others, seen at the same time, exit.
void Attempt::HandleEnds(std::vector<RankProcess*> ended) {
  std::stable_partition(
      ended.begin(), ended.end(),
      [](const RankProcess* each) { return WIFSIGNALED(*each->end); });
  for (RankProcess* rank : ended) {
    if (ShellExitCode(*rank->end) == 0) continue;
    if (const int signal = SignalHeeded(*rank->end);
        signal != 0 && !Stops() && agreed_ == 0) {
      FollowStop(*rank, signal);
    }
    if (ToleratesLoss(*rank)) {
      messages_->Lost(*rank);
      continue;
    }
    if (Replaces(*rank)) continue;
    const bool stopped = HasStopped(*rank);
    const bool died = !stopped && !stopping_;
    if (died || end_.exit_code == 0) NoteEnd(*rank, died);
    if (stopped) {
      messages_->Stopped(*rank,
                         end_.stop_signal != 0 ? end_.stop_signal : agreed_);
    } else if (died) {
      HandleFirstDeath(*rank);
    } else if (*rank->end != SIGTERM && *rank->end != SIGKILL) {
      messages_->EndedAfterwards(*rank);
    }
  }
}

// Whether the rank has ended as it was asked to: where ranks stop together, by
// a signal, its own or the one that they have agreed on.
bool Attempt::HasStopped(const RankProcess& rank) const {
  if (end_.stop_signal != 0) return true;
  if (agreed_ == 0) return false;
  return WIFSIGNALED(*rank.end) ? WTERMSIG(*rank.end) == agreed_
                                : SignalHeeded(*rank.end) != 0;
}

// `died`: the attempt ends because of this, and not of what else was noted.
void Attempt::NoteEnd(RankProcess& rank, bool died) {
  end_.exit_code = ShellExitCode(*rank.end);
  end_.first_dead = rank.rank;
  if (died || end_.cause.empty()) end_.cause = messages_->DeathCause(rank);
  end_.error = WIFEXITED(*rank.end) ? messages_->LastLine(rank) : "";
}

// Others that were to stop after a step would wait for it.
void Attempt::HandleFirstDeath(RankProcess& dead) {
  agreed_ = 0;
  end_.makes_room = false;
  messages_->Died(dead, CountRunning(ranks_));
  StopAll();
  NotifyNodes(dead);
}

// While the others end. A rank that knew why has told the job itself, before.
void Attempt::NotifyNodes(const RankProcess& dead) {
  if (plan_.launch.nnodes == 1 || options_.tell_nodes == nullptr ||
      plan_.launch.rendezvous.kind != Rendezvous::Kind::kTcp) {
    return;
  }
  const auto launch = LaunchOfRank(plan_, dead.local_rank, port_);
  if (!launch.ok()) return;
  telling_ =
      std::thread([this, launch = *launch, how = DescribeEnd(*dead.end)] {
        options_.tell_nodes(launch, how);
      });
}

}  // namespace tandem
