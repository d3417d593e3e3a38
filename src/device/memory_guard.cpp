#include "device/memory_guard.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/guard_band.h"

namespace ssmbench {

void MemoryGuard::add_bands(const std::string& name, const void* data, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  regions_.push_back({name, Kind::band_before, {begin - kBandBytes, kBandBytes}});
  regions_.push_back({name, Kind::band_after, {begin + bytes, kBandBytes}});
}

void MemoryGuard::add_contents(const std::string& name, const void* data, std::size_t bytes) {
  regions_.push_back({name, Kind::contents, {data, bytes}});
}

void MemoryGuard::arm() {
  spans_.clear();
  for (const auto& region : regions_) spans_.push_back(region.span);
  digests_ = device_.digests(spans_);
}

Damage MemoryGuard::damage() const {
  const auto now = device_.digests(spans_);
  Damage all;
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i] != digests_[i]) all.add({describe(regions_[i]), regions_[i].kind != Kind::contents});
  return all;
}

std::string MemoryGuard::describe(const Region& region) const {
  if (region.kind == Kind::contents) return fmt::format("input {} was modified", region.name);
  std::vector<unsigned char> band(kBandBytes);
  device_.copy_out(band.data(), region.span.data, kBandBytes);
  const auto first = std::ranges::find_if(band, [](unsigned char byte) { return byte != kBandByte; });
  const auto offset = first - band.begin();
  if (region.kind == Kind::band_after)
    return fmt::format("{} was written past its end, first at byte +{}", region.name, offset);
  return fmt::format("{} was written before its start, first at byte -{}", region.name,
                     static_cast<std::ptrdiff_t>(kBandBytes) - offset);
}

}  // namespace ssmbench
