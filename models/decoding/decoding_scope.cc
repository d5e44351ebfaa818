#include "models/decoding/decoding_scope.h"

#include <exception>

namespace tandem {
namespace {

thread_local KvCache* current = nullptr;

}  // namespace

DecodingScope::DecodingScope(KvCache* cache)
    : cache_(cache),
      outer_(current),
      exceptions_(std::uncaught_exceptions()),
      no_grad_(false) {
  cache_->BeginPass();
  current = cache_;
}

DecodingScope::~DecodingScope() {
  current = outer_;
  cache_->EndPass(/*succeeded=*/std::uncaught_exceptions() == exceptions_);
}

KvCache* DecodingScope::Current() { return current; }

int64_t DecodingScope::Past() {
  return current == nullptr ? 0 : current->past();
}

}  // namespace tandem
