#include "core/drawing/markup.h"

#include "absl/strings/str_replace.h"
#include "core/base/printable.h"

namespace tandem {

std::string EscapedMarkup(absl::string_view text) {
  return absl::StrReplaceAll(Printable(text),
                             {{"&", "&amp;"},
                              {"<", "&lt;"},
                              {">", "&gt;"},
                              {"\"", "&#34;"},
                              {"'", "&#39;"},
                              {"\xef\xbf\xbe", "\xef\xbf\xbd"},
                              {"\xef\xbf\xbf", "\xef\xbf\xbd"}});
}

}  // namespace tandem
