#pragma once

#include <string>

namespace ssmbench {

/// The only version of the format that this build reads and writes.
inline constexpr const char* kInterchangeSchema = "ssmbench-interchange/1";

/// Who made an interchange file. Everything but the producer may be empty, and is then not in the file.
struct FileInfo {
  std::string producer;  ///< "mamba_ssm 2.3.2"
  std::string device;
  std::string created;  ///< ISO 8601, UTC
  std::string argv;
};

}  // namespace ssmbench
