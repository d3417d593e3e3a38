#pragma once

#include <string>
#include <string_view>

namespace ssmbench {

// Text as the formats of reports need it. Error messages of foreign libraries may hold any bytes: what is not
// UTF-8 becomes U+FFFD.

/// For XML 1.0, in an element or in quotes. Characters that XML does not know become U+FFFD; line breaks and
/// tabs are references, which parsers keep as they are.
std::string xml_text(std::string_view text);

/// A field of RFC 4180: in quotes where it has to be.
std::string csv_field(std::string_view text);

/// For a cell of a Markdown table: one line, no bars, no HTML.
std::string markdown_cell(std::string_view text);

}  // namespace ssmbench
