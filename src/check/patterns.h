#pragma once

#include <string>
#include <vector>

#include "check/judged_output.h"
#include "interchange/reader.h"

namespace ssmbench {

/// Where an output of the case is wrong, in words, when it is wrong in one part only: a batch, a group, a run of
/// time steps, a slot, with what such a part suggests: "only l 64 to 127, one chunk of 64". Empty when nothing or
/// everything is wrong.
std::vector<std::string> patterns_of(const JudgedOutput& output, const Expectation& expected,
                                     const CaseRead& read);

}  // namespace ssmbench
