#pragma once

#include <string_view>

namespace ssmbench {

/// What the JSON library says of an error, without its own code: of "[json.exception.parse_error.101] parse
/// error at line 3, column 7: …" what follows the bracket. `what` has to outlive the result.
inline std::string_view json_error_text(std::string_view what) {
  const auto end_of_code = what.find("] ");
  return what.starts_with("[json.exception") && end_of_code != what.npos ? what.substr(end_of_code + 2)
                                                                         : what;
}

}  // namespace ssmbench
