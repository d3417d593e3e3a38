#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "model/errors.h"

// Configs for tests: written to a folder of this process, loaded, and their messages taken.

namespace ssmbench::test {

/// A folder that lives as long as the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int made = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("ssmbench-config-" + std::to_string(getpid()) + "-" + std::to_string(++made));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

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
