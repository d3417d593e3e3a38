#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace ssmbench {

/// Pins OpenMP thread i of this process to CPU i of those that it may use, counting round where threads are
/// more, until the result is gone; then they may run where they could before. Threads that are started
/// meanwhile by other means may run on all of them. Leaves threads alone that OMP_PROC_BIND binds already,
/// and where the system does not allow it.
std::shared_ptr<void> pin_threads();

/// The CPUs that this thread may use. Empty where the system does not say, as with more CPUs than fit a
/// cpu_set_t.
std::vector<int> allowed_cpus();

/// One of so many shares of CPUs: a run of them, of as equal a length as can be, and one CPU at least.
std::vector<int> share_of(const std::vector<int>& cpus, std::size_t number, std::size_t shares);

/// From now on OpenMP has so many threads, and they and this one may use these CPUs; threads that are started
/// later may too. Leaves them where they are where OMP_PROC_BIND binds them, and for an empty list.
void use_cpus(const std::vector<int>& cpus, int threads);

/// How many threads OpenMP would have started on these CPUs. A launcher may have bound this process to a
/// part of them, so that what OpenMP counted says nothing, unless the user said how many there are to be.
int threads_for(const std::vector<int>& cpus);

/// The CPUs that pin_threads() uses, "0-3,8"; "as OMP_PROC_BIND says" where it leaves them alone.
std::string pinned_cpus();

}  // namespace ssmbench
