// In place of nccl_team.cpp where there is no nccl.h.

#include "base/errors.h"
#include "team/nccl_team.h"

namespace ssmbench {

std::string nccl_built_with() {
  return "";
}

std::string nccl_version() {
  return "";
}

std::unique_ptr<Communicator> join_nccl(Communicator& /*host*/) {
  throw DeviceError("built without NCCL");
}

}  // namespace ssmbench
