#include "core/model/microbatch_scope.h"

namespace tandem {
namespace {

thread_local std::optional<Microbatch> current;

}  // namespace

MicrobatchScope::MicrobatchScope(const Microbatch& microbatch)
    : outer_(current) {
  current = microbatch;
}

MicrobatchScope::~MicrobatchScope() { current = outer_; }

std::optional<Microbatch> MicrobatchScope::Current() { return current; }

}  // namespace tandem
