// Stage parameters: those of one pipeline stage, in flat buffers, by what
// becomes of their gradients.

#ifndef TANDEM_PARALLEL_STRATEGY_STAGE_STAGE_PARAMETERS_H_
#define TANDEM_PARALLEL_STRATEGY_STAGE_STAGE_PARAMETERS_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "core/base/named_tensors.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/model/parameter_traits.h"
#include "parallel/optim/flat_buffer.h"
#include "parallel/optim/flat_buffer_list.h"

namespace tandem {

// Names are full ones; of a tensor that has several it is the first.
struct StageParameterOptions {
  TraitsByName traits;
  // Goes before the traits' groups. Null: these are it.
  std::function<int64_t(const std::string&)> optimizer_group;
  std::vector<std::string> ignored;  // that each replica has for itself
  std::vector<std::string> delayed;  // whose gradients wait for another's
  // For each of the stage's copies of a tied weight the name of the group's
  // first member.
  std::map<std::string, std::string> first_of_copy;
};

// Three kinds of parameters lie in buffers of their own: what backward gives
// gradients of as it comes to it, what waits for another parameter, and copies
// of tied weights of other stages.
class StageParameters {
 public:
  // `memory`: where buffers lie; its traits are not looked at.
  StageParameters(const NamedTensors& parameters, StageParameterOptions options,
                  const FlatBufferOptions& memory);

  // All but the copies, which count once in a norm.
  FlatBufferList own() const;
  FlatBufferList all() const;
  // All whose gradients are averaged over replicas; and of these those that
  // wait for another parameter, and the others.
  FlatBufferList averaged() const;
  std::vector<FlatBuffer*> averaged_late() const;
  std::vector<FlatBuffer*> averaged_at_once() const;

  // Is a parameter or buffer each replica's own?
  bool is_ignored(const std::string& name) const;
  const std::map<std::string, std::string>& first_of_copy() const {
    return options_.first_of_copy;
  }

  // Picks those of the stage's `parameters` that all replicas have alike: not
  // those that each trains for itself.
  NamedTensors AlikeOf(const NamedTensors& parameters) const;

  // Optimizer state by "PARAMETER.STATE": copies have that of their group's
  // first member, so they are left out here, and given it below.
  NamedTensors WithoutCopies(NamedTensors state) const;
  // Picks what is this stage's from `state`, the whole model's or part of it.
  StoredTensors StateOf(const StoredTensors& state) const;

 private:
  enum class Kind { kAtOnce, kDelayed, kCopies };

  Kind KindOf(const std::string& name) const;
  ParameterTraits TraitsFor(const std::string& name) const;
  FlatBufferList ListOf(std::initializer_list<Kind> kinds) const;
  std::vector<FlatBuffer*> Averaged(std::initializer_list<Kind> kinds) const;

  const StageParameterOptions options_;
  std::map<Kind, FlatBuffers> buffers_;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_STRATEGY_STAGE_STAGE_PARAMETERS_H_
