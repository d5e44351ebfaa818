#include "core/store/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "core/base/call_within.h"
#include "core/base/owned_fd.h"
#include "core/base/status_macros.h"
#include "core/base/system_error.h"
#include "core/base/torch_status.h"
#include "core/store/guard/connection.h"
#include "core/store/guard/job_secret.h"
#include "core/store/guard/server.h"
#include "core/store/guarded_store.h"
#include "core/store/server.h"
#include "core/store/sockets.h"

namespace tandem {
namespace {

absl::Status CheckDirectory(const std::string& path, const std::string& name) {
  std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " names no file"));
  }
  if (!std::filesystem::is_directory(directory, error)) {
    return absl::NotFoundError(
        absl::StrCat(name, ": there is no directory ", directory.string()));
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(name, ": may not write in ", directory.string()));
  }
  struct stat found {};
  if (stat(directory.c_str(), &found) != 0) {
    return SystemError(errno, absl::StrCat(name, ": ", directory.string()));
  }
  // With the sticky bit, as in /tmp, nobody replaces another's file. A group
  // may write: that of many users has no other member.
  if ((found.st_mode & S_IWOTH) == 0 || (found.st_mode & S_ISVTX) != 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      name, ": everybody may write in ", directory.string(),
      ", and put a file of theirs there: chmod o-w it, or name another"));
}

// Makes the file, unless it is there, so that this user alone can read and
// write it. Errors name the path and say what to do: InvalidArgument for what
// can be no file, NotFound without a folder, PermissionDenied where this
// process may not write there, FailedPrecondition where others have made the
// file or can read it, and where everybody may write in its folder, and so
// replace it. A folder of a group is taken: many users have one of their own.
absl::Status MakeStoreFile(const std::string& path) {
  const std::string name = absl::StrCat("file://", path);
  TANDEM_RETURN_IF_ERROR(CheckDirectory(path, name));
  const OwnedFd fd(open(path.c_str(),
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                        S_IRUSR | S_IWUSR));
  struct stat file {};
  if (!fd || fstat(fd.get(), &file) != 0) {
    const absl::Status error = SystemError(errno, name);
    // Another user's, or a link.
    if (!absl::IsPermissionDenied(error) && !absl::IsUnknown(error)) {
      return error;
    }
    return absl::FailedPreconditionError(
        absl::StrCat(error.message(), " (give a file of yours)"));
  }
  if (!S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is no regular file"));
  }
  return CheckPrivate(
      file, name,
      "remove it, or name another, on a file system that keeps modes");
}

using std::chrono::milliseconds;

c10d::TCPStoreOptions TcpOptions(int port, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.timeout = timeout;
  options.waitWorkers = false;  // communicators wait, and can say for whom
  return options;
}

absl::Status CheckPort(int port, int least) {
  if (port >= least && port <= 65535) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a port is between ", least, " and 65535, but ", port, " was given"));
}

// How long a server that asks for a secret has to say so, to a rank without
// one: it does so at once.
constexpr milliseconds kGreets(100);

using Clock = std::chrono::steady_clock;

milliseconds Left(Clock::time_point end) {
  return std::max(milliseconds(1),
                  std::chrono::duration_cast<milliseconds>(end - Clock::now()));
}

absl::StatusOr<StorePtr> ConnectUnguarded(const std::string& host, int port,
                                          milliseconds timeout,
                                          std::optional<StoreServer> server) {
  const Clock::time_point end = Clock::now() + timeout;
  // c10d's client would print a stack trace for every try that fails, and wait
  // for ever for a server that accepts and does not answer.
  TANDEM_ASSIGN_OR_RETURN(const OwnedFd first,
                          ConnectWhenServed(host, port, timeout));
  if (AsksForSecret(first.get(), kGreets)) {
    return absl::FailedPreconditionError(
        "the store asks for the job's secret: give --job_secret_file to this "
        "rank, too");
  }
  return CallWithin<StorePtr>(std::max(Left(end), kGreets), [=]() -> StorePtr {
    const c10d::TCPStoreOptions options = TcpOptions(port, timeout);
    if (server.has_value()) {
      return c10::make_intrusive<StoreClient>(host, options, *server);
    }
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  });
}

// A process that is cut off in the middle of a handshake tries again: strangers
// may have beset the server.
absl::StatusOr<StorePtr> ConnectGuarded(const std::string& host, int port,
                                        milliseconds timeout,
                                        std::optional<StoreServer> server,
                                        std::shared_ptr<GuardServer> served) {
  const Clock::time_point end = Clock::now() + timeout;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(OwnedFd fd,
                            ConnectWhenServed(host, port, Left(end)));
    auto connection = GuardedConnection::Open(std::move(fd), JobSecret(), end);
    if (connection.ok()) {
      return StorePtr(c10::make_intrusive<GuardedStore>(
          *std::move(connection), absl::StrCat(host, ":", port), server,
          timeout, std::move(served)));
    }
    if (!absl::IsUnavailable(connection.status()) || Clock::now() >= end) {
      return connection.status();
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

// To what this machine itself listens on: a client would try until its timeout.
absl::Status CheckRoute(const std::string& host) {
  const absl::Status error = LocalAddressTowards(host).status();
  if (error.ok()) return error;
  return absl::UnavailableError(absl::StrCat(
      "this machine cannot reach its own address ", host, ": ", error.message(),
      " (is the interface down? for loopback: ip link set lo up)"));
}

absl::StatusOr<HostedStore> ServeGuarded(const std::string& host,
                                         const BoundSocket& socket,
                                         milliseconds timeout) {
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<GuardServer> served,
                          GuardServer::Start(OwnedFd(socket.fd), JobSecret()));
  TANDEM_ASSIGN_OR_RETURN(
      StorePtr store, ConnectGuarded(host, socket.port, timeout, std::nullopt,
                                     std::move(served)));
  return HostedStore{std::move(store), socket.port};
}

}  // namespace

absl::StatusOr<HostedStore> ServeTcpStore(const std::string& host, int port,
                                          milliseconds timeout) {
  TANDEM_RETURN_IF_ERROR(CheckPort(port, 0));
  TANDEM_ASSIGN_OR_RETURN(BoundSocket socket, ListenOn(host, port));
  const absl::Status route = CheckRoute(host);
  if (!route.ok()) {
    close(socket.fd);
    return route;
  }
  if (!JobSecret().empty()) return ServeGuarded(host, socket, timeout);
  c10d::TCPStoreOptions options = TcpOptions(socket.port, timeout);
  options.isServer = true;
  options.masterListenFd = socket.fd;  // the server's from here on
  // Its own client tries for ever where the process may open no more files.
  auto store = CallWithin<StorePtr>(timeout, [=]() -> StorePtr {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  });
  if (!store.ok()) {
    return Annotate(store.status(),
                    absl::StrCat("serve a store on ", host, ":", socket.port));
  }
  return HostedStore{*std::move(store), socket.port};
}

absl::StatusOr<StorePtr> ConnectTcpStore(const std::string& host, int port,
                                         milliseconds timeout,
                                         std::optional<StoreServer> server) {
  TANDEM_RETURN_IF_ERROR(CheckPort(port, 1));
  absl::StatusOr<StorePtr> store =
      JobSecret().empty()
          ? ConnectUnguarded(host, port, timeout, server)
          : ConnectGuarded(host, port, timeout, server, nullptr);
  if (store.ok()) return store;
  const absl::Status& error = store.status();
  if (absl::IsInvalidArgument(error)) return error;  // long before `timeout`
  if (absl::IsFailedPrecondition(error)) {
    return Annotate(error, absl::StrCat("the store at ", host, ":", port));
  }
  return Annotate(
      error,
      absl::StrCat(
          "cannot reach the store at ", host, ":", port, " within ",
          absl::FormatDuration(absl::FromChrono(timeout)),
          " (is rank 0 or the launcher running there, and are --master_addr "
          "and --master_port the same on every node?)"));
}

absl::StatusOr<StorePtr> OpenFileStore(const std::string& path, int rank,
                                       int world_size,
                                       const std::string& key_prefix,
                                       milliseconds timeout) {
  TANDEM_RETURN_IF_ERROR(MakeStoreFile(path));
  return CatchTorchOr(
      [&]() -> absl::StatusOr<StorePtr> {
        StorePtr store = WithPrefix(
            c10::make_intrusive<c10d::FileStore>(path, world_size), key_prefix);
        store->setTimeout(timeout);
        if (store->add(absl::StrCat("joined/", rank), 1) > 1) {
          return absl::FailedPreconditionError(absl::StrCat(
              "rank ", rank,
              " has joined before: the file is of another job, or of an "
              "earlier one that did not end well. Remove it, or name another"));
        }
        return store;
      },
      absl::StrCat("file://", path));
}

StorePtr WithPrefix(StorePtr store, const std::string& prefix) {
  if (prefix.empty()) return store;
  return c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store));
}

std::string TextAt(c10d::Store& store, const std::string& key) {
  return store.check({key}) ? store.get_to_str(key) : "";
}

StorePtr NewHashStore(milliseconds timeout) {
  StorePtr store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(timeout);
  return store;
}

}  // namespace tandem
