#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/case.h"

// The JSON format is described in configs/README.md and defined by configs/schema.json.

namespace ssmbench {

/// `--set axis=values`: takes the place of what a config says about the axis.
struct Override {
  std::string axis;
  std::vector<AxisValue> values;  ///< ranges expanded, at least one
  std::string origin;             ///< the option as given, for messages
};

/// Parses what follows --set: `axis=v1,v2`, where an item may be a range `512:65536:*2` or `64:256:+64`.
/// Throws UsageError. Whether the axis exists and takes the values is found when the override is applied.
Override parse_override(std::string_view text);

/// Expands the sweeps of the files, in file order, the last axis of a sweep fastest.
/// `quick` keeps batch 1 and the shortest seqlen of each sweep; overrides come after it and so win. Cases
/// that `quick` or overrides make equal are kept once; without them equal cases are an error. Throws
/// UsageError, one line: `FILE: JSON POINTER: what is wrong; expected …`.
std::vector<Case> load_configs(const std::vector<std::filesystem::path>& files,
                               const std::vector<Override>& overrides, bool quick);
/// The same without overrides, sweep by sweep: `visit` gets the cases of one, and only they are in memory.
/// Everything is checked before the first call.
void visit_configs(const std::vector<std::filesystem::path>& files,
                   const std::function<void(std::vector<Case>)>& visit);
std::vector<Case> load_config(const std::filesystem::path& file, const std::vector<Override>& overrides,
                              bool quick);

/// Throws UsageError naming file, sweep, case, need and availability when the case does not fit. No device
/// bytes: no device is used.
void check_memory(const Case& the_case, const MemoryNeed& need, std::size_t host_bytes_available,
                  std::optional<std::size_t> device_bytes_available);

}  // namespace ssmbench
