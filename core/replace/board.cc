#include "core/replace/board.h"

#include <cstdint>
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

}  // namespace

Board::Board(StorePtr job) : store_(WithPrefix(std::move(job), kPrefix)) {}

void Board::Append(const std::string& list, const std::string& text) {
  store_->append(list, std::vector<uint8_t>(text.begin(), text.end()));
}

std::optional<Generation> Board::Latest() {
  return DecodeGeneration(TextAt(*store_, kLatest));
}

Generation Board::Follow(const Generation* now, const Generation& next) {
  const std::string before = now == nullptr ? "" : Encode(*now);
  return DecodeGeneration(store_->compareSet(kLatest, before, Encode(next)))
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
  return {DecodeMembers(TextAt(*store_, ReadyKey(now))),
          DecodeMembers(TextAt(*store_, kWaiting)),
          DecodeDeaths(TextAt(*store_, kDead))};
}

void Board::NoteFinished() { store_->set(kFinished, std::string("1")); }

bool Board::IsFinished() { return store_->check({kFinished}); }

std::string PrefixOfGeneration(const std::string& job_prefix, int number) {
  if (number == 0) return job_prefix;
  return absl::StrCat(job_prefix, "generation_", number, "/");
}

}  // namespace tandem
