#pragma once

#include <string>
#include <string_view>

namespace ssmbench {

/// What this executable was built from and with, so that a result can name its origin.
struct BuildInfo {
  std::string_view version;       ///< "0.1.0"
  std::string_view git_revision;  ///< full commit id, with "-dirty" when tracked files differ; or "unknown"
  std::string_view compiler;      ///< "GNU 12.2.0"
  std::string_view build_type;    ///< "Release"
  std::string_view cuda;          ///< version of the toolkit, "13.0.48"; or "none"
  std::string_view cuda_architectures;  ///< as given to CMake, "90a-real;75-virtual"; or "none"
};

const BuildInfo& build_info();

/// The linker's hash of the running executable's contents (its GNU build id), in hex; "unknown" when it has
/// none.
std::string executable_build_id();

}  // namespace ssmbench
