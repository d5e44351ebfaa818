// Cut places: where a text can be cut in two, the best places first.

#ifndef TANDEM_TOOLS_TEXTS_CUT_PLACES_H_
#define TANDEM_TOOLS_TEXTS_CUT_PLACES_H_

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem {

// Bytes of `text`, from `least` to `most`, that the second part may begin with:
// first those behind a line's end (LF, CR LF or CR) that are no white space,
// then others behind one, then line ends, then other white space, then the
// beginnings of any characters; of each kind in their order, and `count` of it
// at most. No part is empty, and none is cut within a character of UTF-8 or
// between CR and LF.
std::vector<size_t> CutPlaces(absl::string_view text, size_t least, size_t most,
                              size_t count);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXTS_CUT_PLACES_H_
