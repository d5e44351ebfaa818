#include "core/drawing/markup.h"

#include "absl/strings/str_replace.h"
#include "core/base/printable.h"
#include "core/base/utf8.h"

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

std::string MarkdownCell(absl::string_view text) {
  return absl::StrReplaceAll(ReplaceInvalidUtf8(text),
                             {{"|", "\\|"}, {"\n", "<br>"}});
}

}  // namespace tandem
