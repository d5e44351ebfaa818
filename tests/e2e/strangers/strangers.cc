#include "tests/e2e/strangers/strangers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/core/testing/listening_sockets.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAgain(400);
constexpr milliseconds kConnects(2000);

std::vector<std::vector<std::string>> Table(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

// "127.0.0.1" and a port, or an abstract name behind '@'.
int SocketTo(const std::string& name, sockaddr_storage* address,
             socklen_t* length) {
  if (name[0] == '@') {
    auto* local = reinterpret_cast<sockaddr_un*>(address);
    local->sun_family = AF_UNIX;
    std::memcpy(local->sun_path + 1, name.data() + 1, name.size() - 1);
    *length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  }
  auto* tcp = reinterpret_cast<sockaddr_in*>(address);
  int port = 0;
  if (!absl::SimpleAtoi(name, &port)) return -1;
  tcp->sin_family = AF_INET;
  tcp->sin_port = htons(static_cast<uint16_t>(port));
  tcp->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  *length = sizeof(*tcp);
  return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

bool ConnectSoon(int fd, const sockaddr_storage& address, socklen_t length) {
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
    return true;
  }
  if (errno != EINPROGRESS) return false;
  pollfd ready{fd, POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof(error);
  return poll(&ready, 1, static_cast<int>(kConnects.count())) > 0 &&
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

std::string NameOf(Door door) {
  switch (door) {
    case Door::kStore:
      return "store";
    case Door::kGloo:
      return "gloo";
    case Door::kLocal:
      break;
  }
  return "local socket";
}

const std::vector<Manners>& AllManners() {
  // To c10d's server: who I am, and `set` of a key.
  const std::string c10d(
      "\x00\xce\xf7\x85\x3c\x01\x01\0\0\0\0\0\0\0k\x01\0\0\0"
      "\0\0\0\0v",
      24);
  static const auto* const all = new std::vector<Manners>{
      {"silent", ""},
      {"closes", "", 3, false},
      {"garbage", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"half a message", "tan"},
      {"gigantic length", std::string(65536, '\xff')},
      {"c10d's client", c10d},
      {"many", "", 200},
  };
  return *all;
}

Strangers::Strangers(const Program& program, const Manners& manners)
    : program_(program), manners_(manners), thread_([this] { Run(); }) {}

void Strangers::Stop() {
  stops_ = true;
  if (thread_.joinable()) thread_.join();
}

void Strangers::Run() {
  std::map<std::string, Clock::time_point> again;
  while (!stops_) {
    for (const auto& [name, door] : Doors()) {
      const auto [at, is_new] = again.emplace(name, Clock::now() + kAgain);
      if (!is_new && Clock::now() < at->second) continue;
      Knock(name, door);
      if (is_new) continue;
      at->second = connected()[door] < manners_.how_many
                       ? Clock::now() + kAgain
                       : Clock::time_point::max();
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
}

std::map<std::string, Door> Strangers::Doors() const {
  std::map<std::string, Door> doors;
  const auto tcp = Table("/proc/net/tcp");
  const auto local = Table("/proc/net/unix");
  for (const pid_t pid : program_.LivingProcesses()) {
    const std::set<std::string> own = SocketsOf(absl::StrCat(pid));
    for (const auto& row : tcp) {
      if (row.size() < 10 || row[3] != "0A" || own.count(row[9]) == 0) continue;
      const int port = std::stoi(row[1].substr(9), nullptr, 16);
      doors[absl::StrCat(port)] =
          pid == program_.pid() ? Door::kStore : Door::kGloo;
    }
    for (const auto& row : local) {
      if (row.size() < 8 || row[3] != "00010000" || own.count(row[6]) == 0 ||
          !absl::StartsWith(row[7], "@tandem-")) {
        continue;
      }
      doors[row[7]] = Door::kLocal;
    }
  }
  return doors;
}

void Strangers::Knock(const std::string& name, Door door) {
  for (int i = 0; i < manners_.how_many; ++i) {
    sockaddr_storage address{};
    socklen_t length = 0;
    OwnedFd fd(SocketTo(name, &address, &length));
    if (!fd || !ConnectSoon(fd.get(), address, length)) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++connected_[door];
    }
    if (!manners_.says.empty()) {
      (void)!send(fd.get(), manners_.says.data(), manners_.says.size(),
                  MSG_NOSIGNAL);
    }
    if (manners_.stays) staying_.push_back(std::move(fd));
  }
}

}  // namespace tandem
