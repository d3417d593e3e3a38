#include <fmt/format.h>

#include "config/config.h"
#include "config/document.h"

namespace ssmbench {
namespace {

void check_fits(const Case& one, std::string_view kind, std::size_t needed, std::size_t available) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  if (needed > available)
    fail(one.source,
         fmt::format("{} needs {:.4g} GiB of {} memory", one.id(), static_cast<double>(needed) / kGiB, kind),
         fmt::format("at most the {:.4g} GiB that are available", static_cast<double>(available) / kGiB));
}

}  // namespace

void check_memory(const Case& the_case, const MemoryNeed& need, std::size_t host_bytes_available,
                  std::optional<std::size_t> device_bytes_available) {
  check_fits(the_case, "host", need.host, host_bytes_available);
  if (device_bytes_available) check_fits(the_case, "device", need.device, *device_bytes_available);
}

}  // namespace ssmbench
