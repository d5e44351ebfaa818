#include "parallel/strategy/stage/stage_parameters.h"

#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/mesh/mesh.h"
#include "parallel/ddp/option_checks.h"
#include "parallel/optim/grouped_optimizer.h"

namespace tandem {

// Each kind by itself, in which parameters keep their positions. A tensor is of
// the kind of its first name.
StageParameters::StageParameters(const NamedTensors& parameters,
                                 StageParameterOptions options,
                                 const FlatBufferOptions& memory)
    : options_(std::move(options)) {
  std::set<std::string> firsts;
  for (const auto& each : UnderFirstNames(parameters)) {
    firsts.insert(each.first);
  }
  for (const Kind kind : {Kind::kAtOnce, Kind::kDelayed, Kind::kCopies}) {
    FlatBufferOptions flat = memory;
    flat.traits.clear();
    for (const auto& each : parameters) {
      flat.traits.emplace_back();
      if (firsts.count(each.first) == 0 || KindOf(each.first) != kind) continue;
      flat.traits.back() = TraitsFor(each.first);
    }
    buffers_[kind] = MakeFlatBuffers(parameters, flat);
  }
}

bool StageParameters::is_ignored(const std::string& name) const {
  return absl::c_linear_search(options_.ignored, name);
}

StageParameters::Kind StageParameters::KindOf(const std::string& name) const {
  if (options_.first_of_copy.count(name) > 0) return Kind::kCopies;
  const bool waits = absl::c_linear_search(options_.delayed, name);
  return waits && !is_ignored(name) ? Kind::kDelayed : Kind::kAtOnce;
}

// A copy's are those of its first.
ParameterTraits StageParameters::TraitsFor(const std::string& name) const {
  const auto copy = options_.first_of_copy.find(name);
  const std::string& first =
      copy == options_.first_of_copy.end() ? name : copy->second;
  ParameterTraits traits = TraitsOf(options_.traits, first);
  const auto& group = options_.optimizer_group;
  if (group) traits.optimizer_group = group(first);
  if (is_ignored(first)) traits.reduce_axes.clear();
  return traits;
}

FlatBufferList StageParameters::ListOf(
    std::initializer_list<Kind> kinds) const {
  std::vector<FlatBuffer*> list;
  for (const Kind kind : kinds) {
    for (const auto& buffer : buffers_.at(kind)) list.push_back(buffer.get());
  }
  return FlatBufferList(list);
}

std::vector<FlatBuffer*> StageParameters::Averaged(
    std::initializer_list<Kind> kinds) const {
  std::vector<FlatBuffer*> averaged;
  for (FlatBuffer* buffer : ListOf(kinds)) {
    if (buffer->traits().reduces_over(kDataAxis)) averaged.push_back(buffer);
  }
  return averaged;
}

FlatBufferList StageParameters::own() const {
  return ListOf({Kind::kAtOnce, Kind::kDelayed});
}

FlatBufferList StageParameters::all() const {
  return ListOf({Kind::kAtOnce, Kind::kDelayed, Kind::kCopies});
}

FlatBufferList StageParameters::averaged() const {
  return FlatBufferList(
      Averaged({Kind::kAtOnce, Kind::kDelayed, Kind::kCopies}));
}

std::vector<FlatBuffer*> StageParameters::averaged_late() const {
  return Averaged({Kind::kDelayed});
}

std::vector<FlatBuffer*> StageParameters::averaged_at_once() const {
  return Averaged({Kind::kAtOnce, Kind::kCopies});
}

NamedTensors StageParameters::AlikeOf(const NamedTensors& parameters) const {
  std::set<const c10::TensorImpl*> own;
  for (const auto& [name, tensor] : parameters) {
    if (is_ignored(name)) own.insert(tensor.unsafeGetTensorImpl());
  }
  for (const FlatBuffer* buffer : all()) {
    if (buffer->traits().reduces_over(kDataAxis)) continue;
    for (const FlatSlot& slot : buffer->slots()) {
      own.insert(slot.parameter.unsafeGetTensorImpl());
    }
  }
  NamedTensors alike;
  for (const auto& each : parameters) {
    if (own.count(each.second.unsafeGetTensorImpl()) == 0) {
      alike.push_back(each);
    }
  }
  return alike;
}

NamedTensors StageParameters::WithoutCopies(NamedTensors state) const {
  NamedTensors without_copies;
  for (auto& each : state) {
    if (options_.first_of_copy.count(ParameterOf(each.first)) > 0) continue;
    without_copies.push_back(std::move(each));
  }
  return without_copies;
}

StoredTensors StageParameters::StateOf(const StoredTensors& state) const {
  std::multimap<std::string, std::string> names;  // in `state`, here
  for (const FlatBuffer* buffer : all()) {
    for (const FlatSlot& slot : buffer->slots()) {
      const auto copy = options_.first_of_copy.find(slot.name);
      const bool is_copy = copy != options_.first_of_copy.end();
      names.emplace(is_copy ? copy->second : slot.name, slot.name);
    }
  }
  StoredTensors mine;
  for (const StoredTensor& each : state) {
    const std::string& name = each.info.name;
    const std::string parameter = ParameterOf(name);
    const auto range = names.equal_range(parameter);
    for (auto it = range.first; it != range.second; ++it) {
      StoredTensor renamed = each;
      renamed.info.name =
          absl::StrCat(it->second, name.substr(parameter.size()));
      mine.Add(std::move(renamed));
    }
  }
  return mine;
}

}  // namespace tandem
