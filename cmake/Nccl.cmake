# Sets SSMBENCH_HAS_NCCL and SSMBENCH_NCCL_INCLUDE. The header alone: the library is looked for when the program runs.
set(SSMBENCH_HAS_NCCL FALSE)
if(SSMBENCH_HAS_CUDA)
  find_path(SSMBENCH_NCCL_INCLUDE nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS}
    PATH_SUFFIXES include DOC "Folder of nccl.h")
  if(SSMBENCH_NCCL_INCLUDE)
    set(SSMBENCH_HAS_NCCL TRUE)
  endif()
endif()
if(SSMBENCH_HAS_NCCL)
  message(STATUS "NCCL: ${SSMBENCH_NCCL_INCLUDE}/nccl.h")
elseif(SSMBENCH_HAS_CUDA)
  message(STATUS "NCCL: no nccl.h; ranks on GPUs exchange data through host memory (NCCL_ROOT names its folder)")
endif()
