// Sockets of a process, and what this one listens on. For tests.

#ifndef TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_
#define TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_

#include <arpa/inet.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace tandem {

// Inodes of the sockets of a process: "self", or its number. None for one that
// has ended.
inline std::set<std::string> SocketsOf(const std::string& process) {
  std::set<std::string> inodes;
  std::error_code gone;
  std::filesystem::directory_iterator each("/proc/" + process + "/fd", gone);
  for (; !gone && each != std::filesystem::directory_iterator();
       each.increment(gone)) {
    std::error_code error;
    // It reads "socket:[12345]".
    const std::string link =
        std::filesystem::read_symlink(each->path(), error).string();
    if (link.rfind("socket:[", 0) == 0) {
      inodes.insert(link.substr(8, link.size() - 9));
    }
  }
  return inodes;
}

// "0100007F:1267" as "127.0.0.1:4711".
inline std::string ReadableAddress(const std::string& hex) {
  const size_t colon = hex.find(':');
  const std::string port =
      std::to_string(std::strtoul(hex.c_str() + colon + 1, nullptr, 16));
  if (colon != 8) return "v6 " + hex.substr(0, colon) + ":" + port;
  in_addr address{
      static_cast<uint32_t>(std::strtoul(hex.c_str(), nullptr, 16))};
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return std::string(text) + ":" + port;
}

// The local addresses of all TCP sockets on which this process listens, from
// /proc/net/tcp and tcp6: "127.0.0.1:4711", or for IPv6 the kernel's hex digits
// after "v6 ".
inline std::vector<std::string> ListeningSockets() {
  const std::set<std::string> own = SocketsOf("self");
  std::vector<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, skipped, inode;
      words >> slot >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> inode;
      const bool listens = state == "0A" && own.count(inode) > 0;
      if (listens) found.push_back(ReadableAddress(local));
    }
  }
  return found;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_LISTENING_SOCKETS_H_
