#include "core/store/guard/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/digest/hmac_sha256.h"
#include "core/store/guard/key_values.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Deadline = GuardedConnection::Deadline;

absl::Status Await(int fd, short events, Deadline deadline) {
  while (true) {
    const auto left =
        std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd ready{fd, events, 0};
    const int count =
        poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60000)));
    if (count > 0) return absl::OkStatus();
    if (count < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError("the store's server is silent");
    }
  }
}

absl::Status SendAll(int fd, absl::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    TANDEM_RETURN_IF_ERROR(Await(fd, POLLOUT, deadline));
    const ssize_t sent =
        send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) return absl::UnavailableError("the connection is lost");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

// How many bytes have come to `to`: one at least, `most` at most.
absl::StatusOr<size_t> ReceiveSome(int fd, char* to, size_t most,
                                   Deadline deadline) {
  while (true) {
    TANDEM_RETURN_IF_ERROR(Await(fd, POLLIN, deadline));
    const ssize_t got = recv(fd, to, most, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return absl::UnavailableError("the connection is lost");
    return static_cast<size_t>(got);
  }
}

absl::StatusOr<std::string> ReceiveAll(int fd, size_t size, Deadline deadline) {
  std::string all(size, '\0');
  for (size_t have = 0; have < size;) {
    TANDEM_ASSIGN_OR_RETURN(const size_t some,
                            ReceiveSome(fd, &all[have], size - have, deadline));
    have += some;
  }
  return all;
}

// The server's nonce.
absl::StatusOr<std::string> ReceiveGreeting(int fd, Deadline deadline) {
  const absl::Status begun = Await(fd, POLLIN, deadline);
  if (absl::IsDeadlineExceeded(begun)) {
    return absl::DeadlineExceededError(
        "no greeting: the store asks for no secret (give --job_secret_file to "
        "its server, rank 0 or the launcher, too), its process is "
        "stopped, or it may open no more files (ulimit -n)");
  }
  TANDEM_RETURN_IF_ERROR(begun);
  const absl::StatusOr<std::string> greeting =
      ReceiveAll(fd, kGreetingBytes, deadline);
  if (absl::IsUnavailable(greeting.status())) return greeting.status();
  if (!greeting.ok() || !absl::StartsWith(*greeting, kMagic)) {
    return absl::FailedPreconditionError(
        "this rank has a job secret, but the store asks for none: give "
        "--job_secret_file to its server, rank 0 or the launcher, too");
  }
  return greeting->substr(kMagic.size());
}

absl::Status CheckServer(const std::string& proof, const std::string& secret,
                         const Nonces& nonces) {
  if (SameCode(proof, ServerProof(secret, nonces))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      proof == kRefusal
          ? "the store has turned this rank away: its job secret is another "
            "one; give the same --job_secret_file everywhere"
          : "the store's server does not know the job's secret");
}

}  // namespace

absl::StatusOr<std::unique_ptr<GuardedConnection>> GuardedConnection::Open(
    OwnedFd fd, const std::string& secret, Deadline deadline) {
  Nonces nonces;
  TANDEM_ASSIGN_OR_RETURN(nonces.client, RandomBytes(kNonceBytes));
  TANDEM_ASSIGN_OR_RETURN(nonces.server, ReceiveGreeting(fd.get(), deadline));
  TANDEM_RETURN_IF_ERROR(
      SendAll(fd.get(), ClientProof(secret, nonces), deadline));
  TANDEM_ASSIGN_OR_RETURN(const std::string proof,
                          ReceiveAll(fd.get(), kCodeBytes, deadline));
  TANDEM_RETURN_IF_ERROR(CheckServer(proof, secret, nonces));
  return std::unique_ptr<GuardedConnection>(
      new GuardedConnection(std::move(fd), DeriveKeys(secret, nonces)));
}

absl::StatusOr<std::vector<std::string>> GuardedConnection::Call(
    const std::vector<std::string>& request, Deadline deadline) {
  const std::string text = EncodeRequest(request);
  if (text.size() > kMostMessageBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request to the store has ", text.size(),
                     " bytes, at most ", kMostMessageBytes, " are allowed"));
  }
  absl::MutexLock lock(&mutex_);
  if (!fd_) return absl::UnavailableError("the connection is lost");
  const absl::StatusOr<std::string> answer = Exchange(text, deadline);
  if (!answer.ok()) return answer.status();
  return DecodeAnswer(*answer);
}

absl::StatusOr<std::string> GuardedConnection::Exchange(
    const std::string& request, Deadline deadline) {
  const absl::Status sent = SendAll(fd_.get(), sealer_.Seal(request), deadline);
  if (!sent.ok()) {
    fd_ = OwnedFd();  // half a request may be on its way
    return sent;
  }
  ++owed_;
  while (true) {
    absl::StatusOr<std::string> answer = NextAnswer(deadline);
    if (absl::IsDeadlineExceeded(answer.status())) return answer;
    if (!answer.ok()) {
      fd_ = OwnedFd();
      return answer;
    }
    // Answers to earlier calls come first.
    if (--owed_ == 0) return answer;
  }
}

absl::StatusOr<std::string> GuardedConnection::NextAnswer(Deadline deadline) {
  std::array<char, 16384> bytes;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(std::optional<std::string> answer, opener_.Next());
    if (answer.has_value()) return *std::move(answer);
    TANDEM_ASSIGN_OR_RETURN(
        const size_t some,
        ReceiveSome(fd_.get(), bytes.data(), bytes.size(), deadline));
    opener_.Append(absl::string_view(bytes.data(), some));
  }
}

bool AsksForSecret(int fd, milliseconds patience) {
  const absl::StatusOr<std::string> greeting =
      ReceiveAll(fd, kMagic.size(), Clock::now() + patience);
  return greeting.ok() && *greeting == kMagic;
}

}  // namespace tandem
