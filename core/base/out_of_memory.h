// Out-of-memory note: what a program adds to LibTorch's out-of-memory errors.

#ifndef TANDEM_CORE_BASE_OUT_OF_MEMORY_H_
#define TANDEM_CORE_BASE_OUT_OF_MEMORY_H_

#include <string>

namespace tandem {

// What is said behind a device's c10::OutOfMemoryError where it becomes a
// Status (torch_status.h): who held the memory, and what to do. May return
// nothing; must not throw. Null: no note.
using OutOfMemoryNote = std::string (*)();

// Thread-safe.
void SetOutOfMemoryNote(OutOfMemoryNote note);

// What the note says now; empty without one.
std::string NoteOnOutOfMemory();

}  // namespace tandem

#endif  // TANDEM_CORE_BASE_OUT_OF_MEMORY_H_
