#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/case.h"

namespace ssmbench {

/// Keeps the keys of objects in file order, which is the order of cases.
using Json = nlohmann::ordered_json;

/// Keys and indices from a document's root to a place in it.
using JsonPath = std::vector<std::string>;

/// RFC 6901, escaped to one line; the root is "/".
std::string to_pointer(const JsonPath& path);

/// A value as a message shows it: one line of JSON, shortened.
std::string shown(const Json& value);

/// Throws UsageError `FILE: POINTER: what; expected expected`.
[[noreturn]] void fail(const Source& place, std::string_view what, std::string_view expected);

/// Reads and parses a file. Throws UsageError when it cannot be read, is not JSON, nests too deeply, or has
/// an object that holds a key twice.
Json read_document(const std::filesystem::path& file);

}  // namespace ssmbench
