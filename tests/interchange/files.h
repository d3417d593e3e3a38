#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "interchange/writer.h"
#include "model/case.h"

namespace ssmbench::test {

/// An empty folder that goes away with everything in it.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  /// Names of what is in it, sorted.
  std::vector<std::string> entries() const;

 private:
  std::filesystem::path path_;
};

/// A small selective_scan_fwd problem with no two extents alike (batch 2, dim 6, seqlen 5, dstate 3, groups
/// 2) and every optional input, with some axes changed.
Problem full_problem(const std::map<std::string, AxisValue>& changes = {});

/// The tensors of one role, each filled with other bytes: all bit patterns are to survive, NaNs too.
std::vector<HostTensor> filled_tensors(const Problem& problem, Role role);

/// One case "a" with all tensors but the reference.
void write_one_case(const std::string& path, const Problem& problem, bool compress = true);

/// The message of the Error that `call` throws.
template <class Error>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace ssmbench::test
