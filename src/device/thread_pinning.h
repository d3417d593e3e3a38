#pragma once

#include <memory>
#include <string>

namespace ssmbench {

/// Pins OpenMP thread i of this process to CPU i of those that it may use, counting round where threads are
/// more, until the result is gone; then they may run where they could before. Threads that are started
/// meanwhile by other means may run on all of them. Leaves threads alone that OMP_PROC_BIND binds already,
/// and where the system does not allow it.
std::shared_ptr<void> pin_threads();

/// The CPUs that pin_threads() uses, "0-3,8"; "as OMP_PROC_BIND says" where it leaves them alone.
std::string pinned_cpus();

}  // namespace ssmbench
