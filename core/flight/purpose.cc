#include "core/flight/purpose.h"

namespace tandem {
namespace {

thread_local FlightPurpose current;

}  // namespace

FlightPurposeScope::FlightPurposeScope(const FlightPurpose& purpose)
    : before_(current) {
  current = purpose;
}

FlightPurposeScope::~FlightPurposeScope() { current = before_; }

const FlightPurpose& FlightPurposeScope::Current() { return current; }

}  // namespace tandem
