#include "tests/core/testing/listening_sockets.h"

#include <arpa/inet.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace tandem {
namespace {

// "0100007F:1267" as "127.0.0.1:4711".
std::string Readable(const std::string& hex) {
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

}  // namespace

std::set<std::string> SocketsOf(const std::string& process) {
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

std::vector<std::string> ListeningSockets() {
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
      const bool listens = state == "0A";
      if (listens && own.count(inode) > 0) found.push_back(Readable(local));
    }
  }
  return found;
}

}  // namespace tandem
