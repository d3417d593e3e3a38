#include "device/thread_pinning.h"

#include <omp.h>
#include <sched.h>

#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "catch.h"
#include "device/cpu.h"

using namespace ssmbench;

namespace {

std::set<int> my_cpus() {
  cpu_set_t mine;
  sched_getaffinity(0, sizeof(mine), &mine);
  std::set<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mine)) cpus.insert(cpu);
  return cpus;
}

/// The CPUs of each OpenMP thread.
std::multiset<std::set<int>> all_cpus() {
  std::multiset<std::set<int>> all;
  std::mutex mutex;
#pragma omp parallel
  {
    const std::lock_guard lock(mutex);
    all.insert(my_cpus());
  }
  return all;
}

}  // namespace

TEST_CASE("threads are pinned to one CPU each while they are timed, and free again after that") {
  if (omp_get_proc_bind() != omp_proc_bind_false) return;
  const auto allowed = my_cpus();
  {
    const auto pinned = pin_threads();
    REQUIRE(pinned != nullptr);
    const auto during = all_cpus();
    CHECK(during.size() == static_cast<std::size_t>(omp_get_max_threads()));
    for (const auto& of_thread : during) CHECK(of_thread.size() == 1);
    const std::set<std::set<int>> different(during.begin(), during.end());
    CHECK(different.size() == std::min(allowed.size(), during.size()));
    // Threads of another kind are not squeezed onto the one CPU of this thread.
    std::set<int> elsewhere;
    std::thread([&] { elsewhere = my_cpus(); }).join();
    CHECK(elsewhere == allowed);
  }
  for (const auto& of_thread : all_cpus()) CHECK(of_thread == allowed);
}

TEST_CASE("the CPUs of timed threads are listed with the device, and only those that may be used") {
  if (omp_get_proc_bind() != omp_proc_bind_false) return;
  CHECK(cpu_info().details.at("timed_on_cpus") == pinned_cpus());
  const auto allowed = my_cpus();
  std::string text;
  std::thread([&] {  // as in a restricted cpuset
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(*allowed.rbegin(), &one);
    sched_setaffinity(0, sizeof(one), &one);
    text = pinned_cpus();
  })
      .join();
  CHECK(text == std::to_string(*allowed.rbegin()));
}

TEST_CASE("threads are as many as they are told to be, and where, and back again") {
  if (omp_get_proc_bind() != omp_proc_bind_false) return;
  const auto before = allowed_cpus();
  const int threads = omp_get_max_threads();
  const std::set<int> all(before.begin(), before.end());
  REQUIRE(all == my_cpus());
  use_cpus({before.back()}, 1);
  CHECK(all_cpus() == std::multiset<std::set<int>>{{before.back()}});
  use_cpus(before, threads);
  const auto after = all_cpus();
  CHECK(after.size() == static_cast<std::size_t>(threads));
  for (const auto& of_thread : after) CHECK(of_thread == all);
}
