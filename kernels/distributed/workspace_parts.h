#pragma once

#include <cstdint>

#include "kernels/common/workspace.h"

namespace ssmbench {

/// Takes the parts of a workspace, one after the other; only counts where there is none yet.
class WorkspaceParts {
 public:
  explicit WorkspaceParts(float* workspace) : workspace_(workspace) {}
  float* take(std::int64_t floats) {
    const std::int64_t at = layout_.take_floats(floats);
    return workspace_ == nullptr ? nullptr : workspace_ + at;
  }
  std::int64_t floats() const { return layout_.floats(); }

 private:
  float* workspace_;
  WorkspaceLayout layout_;
};

}  // namespace ssmbench
