#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_options.h"
#include "device/device.h"
#include "record/result.h"

namespace ssmbench {

/// Now, "2026-11-20T10:15:00Z".
std::string iso_now();

/// All bytes of a file; none where it cannot be read.
std::string content_of(const std::filesystem::path& path);

/// Command line, build, and the devices of a run; the CPU is always among them.
RunInfo run_info(const RunOptions& options, const std::vector<DeviceInfo>& devices);

/// results/mamba-370m-cuda0-20261120T101500Z.jsonl, in the --out directory, which is made if it is missing.
/// Throws UsageError when it cannot be.
std::string default_results_file(const RunOptions& options, const std::vector<DeviceInfo>& devices);

/// The newest file in the --out directory that such a run named so; nothing when there is none.
std::optional<std::string> newest_results_file(const RunOptions& options,
                                               const std::vector<DeviceInfo>& devices);

}  // namespace ssmbench
