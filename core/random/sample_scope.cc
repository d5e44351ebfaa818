#include "core/random/sample_scope.h"

namespace tandem {
namespace {

thread_local std::optional<Samples> current;

}  // namespace

SampleScope::SampleScope(const Samples& samples) : outer_(current) {
  current = samples;
}

SampleScope::~SampleScope() { current = outer_; }

std::optional<Samples> SampleScope::Current() { return current; }

}  // namespace tandem
