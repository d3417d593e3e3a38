#include "model/build_info.h"

#include "git_revision.h"  // written by cmake/GitRevision.cmake

namespace ssmbench {

const BuildInfo& build_info() {
  static constexpr BuildInfo info{.version = SSMBENCH_VERSION,
                                  .git_revision = SSMBENCH_GIT_REVISION,
                                  .compiler = SSMBENCH_COMPILER,
                                  .build_type = SSMBENCH_BUILD_TYPE,
                                  .cuda = SSMBENCH_CUDA_VERSION,
                                  .cuda_architectures = SSMBENCH_CUDA_ARCHITECTURES};
  return info;
}

}  // namespace ssmbench
