#pragma once

#include <nlohmann/json.hpp>

#include "record/result.h"

namespace ssmbench {

/// `verify.outputs.<tensor>` of results, as the command line's contract has it. Non-finite numbers become
/// null when they are written.
nlohmann::ordered_json to_json(const OutputComparison& comparison);

}  // namespace ssmbench
