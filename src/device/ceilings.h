#pragma once

#include <string>

#include "device/device.h"

namespace ssmbench {

/// What a device can do at most per second, as microbenchmarks found it. 0: not known, and bounds nothing.
struct Ceilings {
  double dram_bytes = 0;  ///< read, written or copied (each byte read and each written), whichever is fastest
  double cache_bytes = 0;   ///< the same within the L2 of a GPU; not known of CPUs
  double exponentials = 0;  ///< by the special function units of a GPU (MUFU); CPUs have none
  double fmas = 0;          ///< f32 multiply-adds outside of tensor cores
  double tf32_flops = 0;    ///< by tensor cores, two per multiply-add, sums in f32
  double f16_flops = 0;
  double bf16_flops = 0;
  double cache_size = 0;    ///< bytes that may stay in caches from one launch to the next; no rate
  double link_bytes = 0;    ///< of teams: that a rank gets from the others
  double link_seconds = 0;  ///< of teams: that the shortest exchange takes; no rate
};

/// Measures them, in about a second, with nothing else running on the device. Throws DeviceError and
/// OutOfMemory.
Ceilings measure_ceilings(const DeviceInfo& device);

/// Name, serial number, driver, threads: what measured ceilings hold for.
std::string ceilings_key(const DeviceInfo& device);

}  // namespace ssmbench
