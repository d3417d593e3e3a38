#pragma once

#include <functional>
#include <string>

namespace ssmbench {

/// Runs `read` in a child process, whatever it may throw there. Throws the UsageError about `where` in `file`
/// (see reject_file) when the child crashes, or uses far more processor time than a file of this size is
/// worth: `seconds`, and more for a large one. What `read` changes in memory is lost with the child.
void rehearse(const std::string& file, const std::string& where, const std::function<void()>& read,
              unsigned seconds = 5);

}  // namespace ssmbench
