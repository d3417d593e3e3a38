#pragma once

/// Marks functions that kernels and the CPU tests share.
#ifdef __CUDACC__
#define SSMBENCH_HD __host__ __device__
#else
#define SSMBENCH_HD
#endif
