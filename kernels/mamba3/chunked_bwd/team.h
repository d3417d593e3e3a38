#pragma once

/// Of functions that a block of threads runs on the GPU, and CPU tests as they are.
#ifdef __CUDACC__
#define SSMBENCH_TEAM __device__
#else
#define SSMBENCH_TEAM
#endif
