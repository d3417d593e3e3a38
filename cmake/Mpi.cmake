# Sets SSMBENCH_HAS_MPI and says which MPI there is. A program that takes its libraries to other machines has none: what
# mpirun there would start has to be built with the MPI that is there.
set(SSMBENCH_HAS_MPI FALSE)
if(SSMBENCH_MPI AND NOT SSMBENCH_BUNDLE_LIBRARIES)
  set(MPI_CXX_SKIP_MPICXX ON)  # the C++ interface that MPI 3 has dropped
  find_package(MPI QUIET COMPONENTS CXX)
  set(SSMBENCH_HAS_MPI ${MPI_CXX_FOUND})
endif()
if(SSMBENCH_HAS_MPI)
  message(STATUS "MPI: ${MPI_CXX_VERSION} (${MPI_CXX_LIBRARIES})")
else()
  message(STATUS "MPI: no; mpirun and srun cannot share a run among processes (install libopenmpi-dev)")
endif()
