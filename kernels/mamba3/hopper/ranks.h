#pragma once

#include "kernels/mamba3/args.h"
#include "model/dtype.h"
#include "model/launch.h"

// Before and after the scan of rows (step, rank): V of each rank, and out of all ranks' rows. Kernels in
// ranks.cuh.

namespace ssmbench::mamba3_hopper {

/// In the workspace.
struct RankRows {
  void* v;   ///< (B, L, R, H, P) io dtype: V·MIMO_V
  float* y;  ///< (B, L, R, H, P): without the skip
};

/// The largest headdim that a warp of the second one holds a row of.
inline constexpr std::int64_t kMaxRankHeaddim = 256;

/// The launches that write V of each rank, and out. Ranks are 1, 2, 4 or 8; tensors of bf16 or f16, aligned
/// to 16 bytes, headdim a multiple of 8. They throw DeviceError when they cannot be launched.
Launch launch_up_projection(const Mamba3Args& args, DType dtype, const RankRows& rows);
Launch launch_down_projection(const Mamba3Args& args, DType dtype, const RankRows& rows);

}  // namespace ssmbench::mamba3_hopper
