#include "reference/common/zeros.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace ssmbench {

void prefer_large_pages(void* memory, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + bytes) / page * page;
  // Where the system has none, the memory is as good without.
  if (first < last) madvise(static_cast<char*>(memory) + (first - begin), last - first, MADV_HUGEPAGE);
}

}  // namespace ssmbench
