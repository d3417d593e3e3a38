#pragma once

#include "kernels/mamba3/args.h"
#include "kernels/mamba3/tensor_bwd/plan.h"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"
#include "model/launch.h"

namespace ssmbench::mamba3_bwd {

/// The gradients of all chunks by wgmma (kernel.cuh), dQ and dK summed over heads: `plan` is of HeadSums::block, `ssd`
/// of heads. Throws DeviceError when a tensor cannot be mapped.
Launch hopper_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                        const Workspace& work);

/// The same of MIMO, of 1, 2, 4 or 8 ranks.
template <int kRanks>
Launch ranked_hopper_gradients(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                               const Workspace& work);

/// The table of packed sequences, and the tensor maps of each (sequences.cuh), which SISO's kernels need. Throws
/// DeviceError when a tensor cannot be mapped.
Launch hopper_sequences(const Mamba3BwdArgs& args, const SsdBwdArgs& ssd, const Plan& plan,
                        const Workspace& work);

/// SISO's walks over states and their gradients, which turn Q and K (walks.cuh). `walks`: SSD's, whose B and C are K and
/// Q.
Launch turning_walks(const Mamba3BwdArgs& args, const ssd_hopper_bwd::Walks& walks, const Plan& plan,
                     const Workspace& work);

/// MIMO's walks over states and their gradients, which write V and dy of ranks as well (rank_walks.cuh).
/// `handed`: room for SSD's walk_handed_layout. Throws DeviceError when a tensor cannot be mapped.
Launch rank_walks(const Mamba3BwdArgs& args, const SsdBwdArgs& of_heads, const Plan& plan,
                  const Workspace& work, void* handed);

}  // namespace ssmbench::mamba3_bwd
