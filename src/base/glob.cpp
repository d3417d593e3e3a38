#include "base/glob.h"

#include <fnmatch.h>

#include <sstream>

namespace ssmbench {

bool matches_glob(const std::string& glob, const std::string& text) {
  return glob.empty() || fnmatch(glob.c_str(), text.c_str(), 0) == 0;
}

bool matches_any_glob(const std::string& globs, const std::string& text) {
  if (globs.empty()) return true;
  std::istringstream list(globs);
  for (std::string glob; std::getline(list, glob, ',');)
    if (!glob.empty() && matches_glob(glob, text)) return true;
  return false;
}

}  // namespace ssmbench
