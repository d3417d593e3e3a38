#pragma once

#include <string>
#include <string_view>

namespace ssmbench {

/// Foreign text for a terminal, in one line: control characters, which could move the cursor or write over
/// what is there, as "\n" or "\x1b"; those that UTF-8 writes as two bytes (U+0080 to U+009F) as "\u009b".
std::string printable(std::string_view text);

}  // namespace ssmbench
