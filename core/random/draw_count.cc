#include "core/random/draw_count.h"

namespace tandem {
namespace {

thread_local int64_t draws = 0;

}  // namespace

void CountDraw() { ++draws; }

int64_t CountedDraws() { return draws; }

}  // namespace tandem
