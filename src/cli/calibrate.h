#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "bench/ceilings_cache.h"
#include "sweep/runner_options.h"
#include "team/link_ceilings.h"

namespace ssmbench {

/// Measures the ceilings of every device of this machine. Throws what measure_ceilings throws.
void measure_devices(CeilingsByKey& ceilings);

/// Measures what carries data between ranks that start as this program does: of the CPU, or of GPUs, which need
/// one each and NCCL. Throws DeviceError.
LinkCeilings measure_links_of(const DeviceInfo& team);

/// What was measured of the devices of a run, by id. Measures those of which nothing is known, and keeps that
/// for later runs. Throws what measure_ceilings throws.
std::map<std::string, Ceilings> known_ceilings(const std::vector<DeviceInfo>& devices, Progress& progress);

/// For RunnerOptions: measures a device some times at most, and keeps the largest rates for later runs too.
/// Ceilings that were measured while the machine was busy would else accuse honest kernels for ever.
decltype(RunnerOptions::measure_again) measure_again();

}  // namespace ssmbench
