#pragma once

namespace ssmbench {

/// What one launch must at least move and compute; throughput and the roofline are figured from it.
struct Work {
  double bytes = 0;         ///< each input read once, each output written once
  double exponentials = 0;  ///< per-state decays, the bulk of the MUFU work
  double fmas = 0;          ///< outside of tensor cores
  double tensor_flops = 0;  ///< on tensor cores, two per multiply-add, at the rate of the claimed math
};

}  // namespace ssmbench
