#include "launch/launcher.h"

#include <algorithm>
#include <cstdlib>

namespace ssmbench {

int launched_processes(const Environment& variable) {
  int processes = 0;
  // Open MPI; MPICH, Intel MPI and Slurm's PMI; srun, where SLURM_NTASKS would be that of the whole
  // allocation.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* value = variable(name)) processes = std::max(processes, std::atoi(value));
  if (processes > 0) return processes;
  return variable("PMIX_RANK") == nullptr ? 1 : 2;
}

}  // namespace ssmbench
