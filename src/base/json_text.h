#pragma once

#include <string>
#include <string_view>

namespace ssmbench {

/// `value`, of the JSON library, as text. JSON is UTF-8, but names of files and messages of foreign libraries
/// may hold any bytes: what is not UTF-8 is replaced.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// What the JSON library says of an error, without its own code: of "[json.exception.parse_error.101] parse
/// error at line 3, column 7: …" what follows the bracket. `what` has to outlive the result.
inline std::string_view json_error_text(std::string_view what) {
  const auto end_of_code = what.find("] ");
  return what.starts_with("[json.exception") && end_of_code != what.npos ? what.substr(end_of_code + 2)
                                                                         : what;
}

}  // namespace ssmbench
