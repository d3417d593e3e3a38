#pragma once

#include <string>

namespace ssmbench {

/// Whether a glob as in fnmatch(3) matches a text. An empty one matches everything.
bool matches_glob(const std::string& glob, const std::string& text);

/// Whether one of several globs, with commas between them, matches a text. An empty list matches everything.
bool matches_any_glob(const std::string& globs, const std::string& text);

}  // namespace ssmbench
