#include "core/store/guard/visitors.h"

#include "absl/strings/str_cat.h"

namespace tandem {

void Visitors::Add(Visitor visitor, Clock::time_point now) {
  const int fd = visitor.fd.get();
  unknown_.push_back({fd, now + kManners});
  visitors_.emplace(fd, std::move(visitor));
  if (unknown_.size() > kMostUnknown) RemoveOldestUnknown();
}

Visitor* Visitors::Find(int fd) {
  const auto at = visitors_.find(fd);
  return at == visitors_.end() ? nullptr : &at->second;
}

void Visitors::NoteMember(int fd) {
  unknown_.remove_if([fd](const Waiting& each) { return each.fd == fd; });
}

void Visitors::Remove(int fd) {
  const auto at = visitors_.find(fd);
  if (at == visitors_.end()) return;
  const Session& session = at->second.session;
  if (!session.is_member() && session.has_spoken()) NoteStranger(at->second);
  NoteMember(fd);
  visitors_.erase(at);
}

void Visitors::RemoveSlow(Clock::time_point now) {
  while (!unknown_.empty() && unknown_.front().until <= now) {
    RemoveOldestUnknown();
  }
}

bool Visitors::RemoveOldestUnknown() {
  if (unknown_.empty()) return false;
  const auto at = visitors_.find(unknown_.front().fd);
  NoteStranger(at->second);
  visitors_.erase(at);
  unknown_.pop_front();
  return true;
}

Visitors::Clock::time_point Visitors::NextEnd() const {
  return unknown_.empty() ? Clock::time_point::max() : unknown_.front().until;
}

void Visitors::NoteStranger(const Visitor& visitor) {
  ++strangers_;
  last_stranger_ = visitor.address;
}

std::string Visitors::DescribeStrangers() const {
  return absl::StrCat(
      strangers_, strangers_ == 1 ? " connection" : " connections",
      " that did not show the job's secret ", strangers_ == 1 ? "was" : "were",
      " turned away from the store, the last from ", last_stranger_);
}

}  // namespace tandem
