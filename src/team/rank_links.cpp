#include "team/rank_links.h"

#include "team/nccl_team.h"
#include "team/staged_team.h"

namespace ssmbench {

RankLinks::RankLinks(Communicator& of_host, Device& device, DataPath path)
    : of_host_(of_host), device_(device) {
  if (device_.shares_host_memory()) return;
  if (path == DataPath::nccl)
    through_ = join_nccl(of_host_);
  else
    through_ = std::make_unique<StagedTeam>(of_host_, device_);
}

LaunchTime RankLinks::time_together(const std::function<void()>& work, double idle_ms) {
  device_.synchronize();
  of_host_.barrier();
  return device_.time_launch([&work](void* /*stream*/) { work(); }, idle_ms);
}

}  // namespace ssmbench
