#include "core/sim/nccl/waits.h"

#include <nlohmann/json.hpp>

namespace tandem {
namespace sim {
namespace {

using nlohmann::json;

json ToJson(const CommunicatorWait& wait) {
  return {{"communicator", wait.communicator},
          {"state", static_cast<int>(wait.state)},
          {"operation", wait.operation},
          {"number", wait.number},
          {"peers", wait.peers},
          {"differs", wait.differs},
          {"seconds", wait.seconds}};
}

CommunicatorWait FromJson(const json& text) {
  CommunicatorWait wait;
  wait.communicator = text.at("communicator").get<std::string>();
  wait.state =
      static_cast<CommunicatorWait::State>(text.at("state").get<int>());
  wait.operation = text.at("operation").get<std::string>();
  wait.number = text.at("number").get<int64_t>();
  wait.peers = text.at("peers").get<std::vector<int>>();
  wait.differs = text.at("differs").get<std::string>();
  wait.seconds = text.at("seconds").get<double>();
  return wait;
}

}  // namespace

std::string RankWaits::Encode() const {
  json all = {{"rank", rank},
              {"waiting_threads", waiting_threads},
              {"communicators", json::array()}};
  for (const CommunicatorWait& each : communicators) {
    all["communicators"].push_back(ToJson(each));
  }
  // A group's name need not be UTF-8.
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

RankWaits DecodeRankWaits(const std::string& text) {
  RankWaits waits;
  try {
    const json all = json::parse(text);
    waits.rank = all.at("rank").get<int>();
    waits.waiting_threads = all.at("waiting_threads").get<int>();
    for (const json& each : all.at("communicators")) {
      waits.communicators.push_back(FromJson(each));
    }
  } catch (const json::exception&) {
    return {};
  }
  return waits;
}

}  // namespace sim
}  // namespace tandem
