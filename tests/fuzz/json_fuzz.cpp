// Configs: whatever the bytes, there are cases or one line of complaint.

#include "base/errors.h"
#include "config/config.h"
#include "fuzz/memory_file.h"

using namespace ssmbench;

// The name is libFuzzer's.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::MemoryFile file;
  const auto path = file.holding(data, size);
  try {
    for (const auto& one : load_config(path, {}, true))
      if (one.id().empty()) std::abort();
  } catch (const UsageError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
