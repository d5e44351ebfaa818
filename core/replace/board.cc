#include "core/replace/board.h"

#include <cstdint>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr char kPrefix[] = "replace";
constexpr char kLatest[] = "latest";
constexpr char kWaiting[] = "waiting";
constexpr char kDead[] = "dead";
constexpr char kFinished[] = "finished";

std::string ReadyKey(const Generation& now) {
  return absl::StrCat("ready/", now.number);
}

std::vector<uint8_t> Bytes(const std::string& text) {
  return std::vector<uint8_t>(text.begin(), text.end());
}

}  // namespace

Board::Board(StorePtr job)
    : store_(c10::make_intrusive<c10d::PrefixStore>(kPrefix, std::move(job))) {}

std::string Board::TextOf(const std::string& key) {
  return store_->check({key}) ? store_->get_to_str(key) : std::string();
}

void Board::Append(const std::string& list, const std::string& text) {
  store_->append(list, Bytes(text));
}

std::optional<Generation> Board::Latest() {
  return DecodeGeneration(TextOf(kLatest));
}

Generation Board::Follow(const Generation* now, const Generation& next) {
  const std::string before = now == nullptr ? "" : Encode(*now);
  const std::vector<uint8_t> latest =
      store_->compareSet(kLatest, Bytes(before), Bytes(Encode(next)));
  return DecodeGeneration(std::string(latest.begin(), latest.end()))
      .value_or(next);
}

void Board::NoteReady(const Generation& now, const Member& member) {
  Append(ReadyKey(now), Encode(member));
}

void Board::NoteWaiting(const Member& process) {
  Append(kWaiting, Encode(process));
}

void Board::NoteDeath(const Death& death) { Append(kDead, Encode(death)); }

Notices Board::Read(const Generation& now) {
  return {DecodeMembers(TextOf(ReadyKey(now))), DecodeMembers(TextOf(kWaiting)),
          DecodeDeaths(TextOf(kDead))};
}

void Board::NoteFinished() { store_->set(kFinished, std::string("1")); }

bool Board::IsFinished() { return store_->check({kFinished}); }

std::string PrefixOfGeneration(const std::string& job_prefix, int number) {
  if (number == 0) return job_prefix;
  return absl::StrCat(job_prefix, "generation_", number, "/");
}

}  // namespace tandem
