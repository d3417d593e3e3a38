// In place of mpi_ranks.cpp, where the build found no MPI.

#include "base/errors.h"
#include "launch/launcher.h"
#include "launch/ranks.h"

namespace ssmbench {

std::string mpi_version() {
  return "";
}

std::unique_ptr<Ranks> join_ranks() {
  throw UsageError(
      "mpirun or srun started several processes, but this ssmbench is built without MPI: they would do the "
      "same "
      "work and write the same files; build it with MPI (libopenmpi-dev), or start one process with --gpus");
}

}  // namespace ssmbench
