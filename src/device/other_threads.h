#pragma once

namespace ssmbench {

/// Waits until no other thread of this process runs or is ready to: OpenMP's threads spin for up to a fifth of
/// a second after their work. False where there is one at every look for half a second. True at once where
/// OMP_WAIT_POLICY is active, since OpenMP's threads never come to rest then.
bool wait_for_other_threads();

}  // namespace ssmbench
