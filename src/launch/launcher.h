#pragma once

#include <functional>
#include <string>

namespace ssmbench {

/// Reads an environment variable; null where there is none, as std::getenv.
using Environment = std::function<const char*(const char*)>;

/// How many processes mpirun or srun has started beside and including this one, by what it left in the
/// environment: 1 where neither did, 2 where it does not say.
int launched_processes(const Environment& variable);

/// "Open MPI 4.1.4"; empty where this program is built without MPI.
std::string mpi_version();

}  // namespace ssmbench
