#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "config/config.h"
#include "support/temporary_folder.h"

// Configs for tests: written to a folder of this process, loaded, and their messages taken.

namespace ssmbench::test {

/// A config with one sweep over `axes` (the inside of the object), and what else the sweep and the file have.
inline std::string config_of(const std::string& axes, const std::string& sweep_extra = "",
                             const std::string& file_extra = "") {
  return R"({"format": "ssmbench-config/1")" + file_extra +
         R"(, "sweeps": [{"op": "selective_scan_fwd", "axes": {)" + axes + "}" + sweep_extra + "}]}";
}

/// Axes of one small case.
inline const std::string kOneCase = R"("batch": 1, "dim": 4, "seqlen": 8, "dstate": 2, "dtype": "f32")";

inline std::vector<Override> overrides_of(const std::vector<std::string>& texts) {
  std::vector<Override> overrides;
  for (const auto& text : texts) overrides.push_back(parse_override(text));
  return overrides;
}

inline std::vector<Case> load(const std::string& text, const std::vector<std::string>& set = {},
                              bool quick = false) {
  const TemporaryFolder folder;
  return load_config(folder.write("test.json", text), overrides_of(set), quick);
}

/// The message of the UsageError that loading throws, without the folder of the file; empty when nothing is
/// thrown.
inline std::string error_of(const std::string& text, const std::vector<std::string>& set = {}) {
  const TemporaryFolder folder;
  try {
    load_config(folder.write("test.json", text), overrides_of(set), false);
  } catch (const UsageError& error) {
    std::string message = error.what();
    const std::string prefix = folder.path().string() + "/";
    for (auto at = message.find(prefix); at != message.npos; at = message.find(prefix))
      message.erase(at, prefix.size());
    return message;
  }
  return "";
}

}  // namespace ssmbench::test
