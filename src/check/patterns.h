#pragma once

#include <string>
#include <vector>

#include "check/judged_output.h"
#include "model/problem.h"

namespace ssmbench {

/// Where an output is wrong, in words, when it is wrong in one part only: a batch, a group, a run of time
/// steps, with what such a part suggests: "wrong from l 64 on, a multiple of 64: …". Empty when nothing or
/// everything is wrong.
std::vector<std::string> patterns_of(const JudgedOutput& output, const Expectation& expected,
                                     const Problem& problem, const Arithmetic& arithmetic);

}  // namespace ssmbench
