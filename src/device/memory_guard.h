#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"

namespace ssmbench {

/// What launches did to memory that they have to leave as it is.
struct Damage {
  std::string text = {};       ///< "out was written past its end, first at byte +0", "input u was modified"
  bool out_of_bounds = false;  ///< a band was overwritten, and not only the contents of an input

  bool found() const { return !text.empty(); }
  void add(const Damage& more) {
    if (!more.found()) return;
    text += (text.empty() ? "" : "; ") + more.text;
    out_of_bounds = out_of_bounds || more.out_of_bounds;
  }
};

/// Memory of a device that implementations have to leave as it is: the bands around every buffer that they
/// are given (model/guard_band.h), and what inputs hold. Owns none of it. Members throw DeviceError.
class MemoryGuard {
 public:
  explicit MemoryGuard(Device& device) : device_(device) {}

  /// The bands around a buffer of Device::allocate, or around a HostBuffer on a device that shares host
  /// memory. `name` is for messages.
  void add_bands(const std::string& name, const void* data, std::size_t bytes);
  /// What a buffer holds.
  void add_contents(const std::string& name, const void* data, std::size_t bytes);

  /// Everything that was added is right as it is now.
  void arm();
  /// What was overwritten since, after launches that have been waited for.
  Damage damage() const;

 private:
  enum class Kind { band_before, band_after, contents };
  struct Region {
    std::string name;
    Kind kind = Kind::contents;
    MemorySpan span;
  };
  std::string describe(const Region& region) const;

  Device& device_;
  std::vector<Region> regions_;
  std::vector<MemorySpan> spans_;  ///< of regions_
  std::vector<std::uint64_t> digests_;
};

}  // namespace ssmbench
