#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "interchange/writer.h"
#include "model/case.h"
#include "support/temporary_folder.h"

namespace ssmbench::test {

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
