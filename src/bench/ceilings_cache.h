#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "device/ceilings.h"

namespace ssmbench {

/// A member of Ceilings with the name that it has in files.
struct CeilingField {
  const char* name;
  double Ceilings::*member;
};
inline constexpr std::array<CeilingField, 10> kCeilingFields{{{"dram_bytes_per_s", &Ceilings::dram_bytes},
                                                              {"cache_bytes_per_s", &Ceilings::cache_bytes},
                                                              {"exponentials_per_s", &Ceilings::exponentials},
                                                              {"fmas_per_s", &Ceilings::fmas},
                                                              {"tf32_flops_per_s", &Ceilings::tf32_flops},
                                                              {"f16_flops_per_s", &Ceilings::f16_flops},
                                                              {"bf16_flops_per_s", &Ceilings::bf16_flops},
                                                              {"cache_size_bytes", &Ceilings::cache_size},
                                                              {"link_bytes_per_s", &Ceilings::link_bytes},
                                                              {"link_seconds", &Ceilings::link_seconds}}};

/// Ceilings by ceilings_key.
using CeilingsByKey = std::map<std::string, Ceilings>;

/// An object of objects. ceilings_in throws UsageError, or an exception of nlohmann, for what json_of does not
/// write.
nlohmann::ordered_json json_of(const CeilingsByKey& ceilings);
CeilingsByKey ceilings_in(const nlohmann::ordered_json& json);

/// The larger of each two rates: whatever else runs while they are measured makes them smaller.
Ceilings larger(const Ceilings& a, const Ceilings& b);

/// $XDG_CACHE_HOME/ssmbench/ceilings.json, else ~/.cache/ssmbench/ceilings.json; empty where neither variable
/// is set.
std::filesystem::path ceilings_file();

/// What the file holds; nothing where there is no file, and nothing but a `warning` where it is damaged or of
/// another format.
CeilingsByKey read_ceilings(const std::filesystem::path& file, std::string& warning);

/// Replaces the file as a whole. Throws OutputError.
void write_ceilings(const std::filesystem::path& file, const CeilingsByKey& ceilings);

}  // namespace ssmbench
