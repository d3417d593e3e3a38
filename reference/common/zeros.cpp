#include "reference/common/zeros.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace ssmbench {

void Zeros::touch_pages(void* memory, std::size_t bytes) {
  // Below this, threads are not worth waking.
  constexpr std::size_t kWorthThreads = std::size_t{1} << 24;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + bytes) / page * page;
  if (first >= last) return;
  auto* const pages = static_cast<char*>(memory) + (first - begin);
  // Where the system has none, the memory is as good without.
  madvise(pages, last - first, MADV_HUGEPAGE);
#pragma omp parallel for schedule(static) if (bytes >= kWorthThreads)
  for (std::uintptr_t at = 0; at < last - first; at += page) *static_cast<volatile char*>(pages + at) = 0;
}

void Zeros::fill() const {
#pragma omp parallel for schedule(dynamic) if (fills_.size() > 1)
  for (const auto& fill : fills_) fill();
}

}  // namespace ssmbench
