#include "device/thread_pinning.h"

#include <fmt/format.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace ssmbench {
namespace {

bool is_bound_by_openmp() {
  return omp_get_proc_bind() != omp_proc_bind_false;
}

cpu_set_t set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return set;
}

/// "0-3,8".
std::string cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[first]);
    if (last > first) text += fmt::format("-{}", cpus[last]);
    first = last + 1;
  }
  return text;
}

class PinnedThreads {
 public:
  explicit PinnedThreads(std::vector<int> cpus) : cpus_(std::move(cpus)) {
    // Threads that an implementation starts itself would inherit the one CPU of this one.
    pthread_getattr_default_np(&default_before_);
    pthread_attr_t anywhere;
    pthread_getattr_default_np(&anywhere);
    const cpu_set_t all = set_of(cpus_);
    pthread_attr_setaffinity_np(&anywhere, sizeof(all), &all);
    pthread_setattr_default_np(&anywhere);
    pthread_attr_destroy(&anywhere);
#pragma omp parallel
    {
      const auto mine = static_cast<std::size_t>(omp_get_thread_num()) % cpus_.size();
      const cpu_set_t one = set_of({cpus_[mine]});
      sched_setaffinity(0, sizeof(one), &one);  // of this thread
    }
  }
  ~PinnedThreads() {
    const cpu_set_t all = set_of(cpus_);
#pragma omp parallel
    sched_setaffinity(0, sizeof(all), &all);
    pthread_setattr_default_np(&default_before_);
    pthread_attr_destroy(&default_before_);
  }
  PinnedThreads(const PinnedThreads&) = delete;
  PinnedThreads& operator=(const PinnedThreads&) = delete;
  PinnedThreads(PinnedThreads&&) = delete;
  PinnedThreads& operator=(PinnedThreads&&) = delete;

 private:
  std::vector<int> cpus_;
  pthread_attr_t default_before_ = {};
};

}  // namespace

std::vector<int> allowed_cpus() {
  cpu_set_t allowed;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  return cpus;
}

std::vector<int> share_of(const std::vector<int>& cpus, std::size_t number, std::size_t shares) {
  if (cpus.empty()) return {};
  const std::size_t begin = number * cpus.size() / shares;
  const std::size_t end = std::max((number + 1) * cpus.size() / shares, begin + 1);
  return {cpus.begin() + static_cast<std::ptrdiff_t>(begin), cpus.begin() + static_cast<std::ptrdiff_t>(end)};
}

int threads_for(const std::vector<int>& cpus) {
  if (cpus.empty() || std::getenv("OMP_NUM_THREADS") != nullptr) return omp_get_max_threads();
  return static_cast<int>(cpus.size());
}

void use_cpus(const std::vector<int>& cpus, int threads) {
  omp_set_num_threads(threads);
  if (cpus.empty() || is_bound_by_openmp()) return;
  const cpu_set_t set = set_of(cpus);
  sched_setaffinity(0, sizeof(set), &set);  // of this thread, and of those that OpenMP starts next
#pragma omp parallel
  sched_setaffinity(0, sizeof(set), &set);
}

std::shared_ptr<void> pin_threads() {
  auto cpus = allowed_cpus();
  if (cpus.empty() || is_bound_by_openmp()) return nullptr;
  return std::make_shared<PinnedThreads>(std::move(cpus));
}

std::string pinned_cpus() {
  if (is_bound_by_openmp()) return "as OMP_PROC_BIND says";
  auto cpus = allowed_cpus();
  cpus.resize(std::min(cpus.size(), static_cast<std::size_t>(omp_get_max_threads())));
  return cpu_list(cpus);
}

}  // namespace ssmbench
