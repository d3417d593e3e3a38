#pragma once

#include <atomic>
#include <set>
#include <string>

#include "interchange/reader.h"

namespace ssmbench {

/// A known mistake that turns the outputs of a case into what they are: "D is not applied", "B and C are
/// swapped", "these are the outputs of method foh". Each mistake is put into the problem and the reference
/// computed anew; it is named when the `failed` outputs, and all others that it has, then pass. Empty when
/// none explains them. Costs a reference per mistake tried. Throws Interrupted.
std::string explanation_of(const CaseRead& read, const std::set<std::string>& failed,
                           const std::atomic<bool>& stop);

}  // namespace ssmbench
